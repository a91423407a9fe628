"""The workload: some tenants flood, the others write now and then. Time is counted in dequeues."""

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
    written in the first `dequeues` is looked at, and not handed out within `tail` more means never. Messages are read
    in batches of `batch`, which leave together.
    """

    flooders: int
    quiet: int = 200
    rate: float = 0.05
    backlog: int = 3000
    dequeues: int = 30_000
    tail: int = 10_000
    late: int = 0
    batch: int = 1
    seed: int = 1


def simulate(
    queue: Discipline, load: Workload, clock: Callable[[], float] | None = None
) -> dict[int, tuple[float, float]]:
    """Run *load*: what each message of a quiet tenant waited, by the dequeue of its write.

    A wait is the number of messages that were handed out before its batch left, and by *clock* the seconds;
    `math.inf`: never. Flooders are tenants 0, 1, ..., quiet ones follow.
    """
    dice = random.Random(load.seed)
    clock = clock or (lambda: 0.0)
    waits: dict[int, tuple[float, float]] = {}
    written: dict[int, float] = {}
    flood(queue, range(1 if load.late else load.flooders), load.backlog)
    for now in range(0, load.dequeues + load.tail, load.batch):
        if load.late and now <= load.late < now + load.batch:
            flood(queue, range(1, load.flooders), load.backlog)
        for at in range(now, now + load.batch):
            if dice.random() < load.rate:
                written[at] = clock()
                queue.write(load.flooders + dice.randrange(load.quiet), at)
        found, left = queue.read_many(load.batch), now + load.batch - 1
        for tenant, at in found:
            if tenant >= load.flooders:
                waits[at] = left - at, clock() - written[at]
        if left >= load.dequeues and all(at in waits for at in written if at < load.dequeues):
            break
        queue.write_all(tenant for tenant, _ in found if tenant < load.flooders)
    never = (math.inf, math.inf)
    return {at: waits.get(at, never) for at in written if at < load.dequeues}


def flood(queue: Discipline, tenants: range, backlog: int) -> None:
    """Each of *tenants* writes its backlog, in batches of 100 that alternate."""
    for begin in range(0, backlog, 100):
        for tenant in tenants:
            queue.write(tenant, *[0] * min(100, backlog - begin))
