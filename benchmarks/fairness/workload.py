"""Who writes when: some tenants flood, the others write now and then. Time is counted in dequeues."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fairness.disciplines import Discipline


@dataclass(frozen=True, slots=True)
class Workload:
    """Floods beside quiet tenants.

    `flooders` tenants keep `backlog` undelivered messages each. The `quiet` ones write `rate` messages per dequeue
    between them, each one of them at random. With `late`, all floods but the first begin in that dequeue. What was
    written in the first `dequeues` is looked at, and not handed out within `tail` more means never.
    """

    flooders: int
    quiet: int = 200
    rate: float = 0.05
    backlog: int = 3000
    dequeues: int = 30_000
    tail: int = 10_000
    late: int = 0
    seed: int = 1


def simulate(
    queue: Discipline, load: Workload, clock: Callable[[], float] | None = None
) -> dict[int, tuple[float, float]]:
    """Run *load*, one message per dequeue: what each message of a quiet tenant waited, by the dequeue of its write.

    A wait is the number of messages that were handed out before it, and by *clock* the seconds; `math.inf`: never.
    Flooders are tenants 0, 1, ..., quiet ones follow.
    """
    dice = random.Random(load.seed)
    clock = clock or (lambda: 0.0)
    waits: dict[int, tuple[float, float]] = {}
    written: dict[int, float] = {}
    flood(queue, range(1 if load.late else load.flooders), load.backlog)
    for now in range(load.dequeues + load.tail):
        if load.late and load.late == now:
            flood(queue, range(1, load.flooders), load.backlog)
        if dice.random() < load.rate:
            written[now] = clock()
            queue.write(load.flooders + dice.randrange(load.quiet), now)
        match queue.read():
            case (tenant, _) if tenant < load.flooders:
                queue.write(tenant, 0)
            case (_, at):
                waits[at] = now - at, clock() - written[at]
    never = (math.inf, math.inf)
    return {at: waits.get(at, never) for at in written if at < load.dequeues}


def flood(queue: Discipline, tenants: range, backlog: int) -> None:
    """Each of *tenants* writes its backlog, in batches of 100 that alternate."""
    for begin in range(0, backlog, 100):
        for tenant in tenants:
            queue.write(tenant, *[0] * min(100, backlog - begin))
