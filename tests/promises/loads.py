"""Loads of many tenants, served by a queue and by the ideal one: how long the quiet ones wait in each."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardq import Queue
from shardq.model import DeliveryView
from tests.clients import ClientKind
from tests.promises.ideal import Ideal, p99
from tests.waiting import eventually
from tests.worker.running import RunningWorker

TIMES = 1.3
"""How much longer than in the ideal queue a quiet tenant's message may wait."""

BESIDE = 2
"""Deliveries more that a wait may have: one that was under way as the message came, and one for the turns of those who
wait, which get one delivery in eight even if others have nothing in flight."""


CHANCE = 0.15
"""How many newcomers there are for each delivery."""


@dataclass
class Served:
    """Whose messages were delivered, in order, and after how many others those of quiet tenants came."""

    order: list[str] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)


def is_flood(tenant: str) -> bool:
    """Whether a tenant has much more than the others."""
    return tenant.startswith("flood")


def served_by(queue: Queue, batch: int, most: int) -> Served:
    """Read so many messages in batches, and ack them. What one read delivers comes at once: there is no wait in it."""
    served = Served()
    while len(served.order) < most and (found := queue.read_many(batch)):
        assert queue.ack_many(found) == []
        _note(served, [str(each.shard_key) for each in found], len(served.order))
    return served


def _note(served: Served, tenants: Sequence[str], waited: int) -> None:
    served.order += tenants
    served.waits += [waited for each in tenants if not is_flood(each)]


def served_ideally(waiting: Sequence[str], most: int) -> Served:
    """The same for the ideal queue, one message after the other; they came in this order."""
    queue, served = Ideal(), Served()
    for tenant in waiting:
        queue.write(tenant)
    while len(served.order) < min(most, len(waiting)):
        _note(served, [queue.read()], len(served.order))
    return served


def served_by_worker(client_kind: ClientKind, url: str, name: str, concurrency: int, most: int) -> Served:
    """The same for a worker, whose handlers take no time. As many as it runs at once come at once."""
    order: list[str] = []
    lock, enough = threading.Lock(), threading.Event()

    def handle(delivery: DeliveryView) -> None:
        with lock:
            order.append(str(delivery.shard_key))
            if len(order) >= most:
                enough.set()

    with RunningWorker(client_kind, url, name, handle, concurrency=concurrency) as begun:
        eventually(lambda: enough.is_set() or begun.failure, 60, what="so many deliveries")
    assert begun.failure is None
    served = Served()
    for number, tenant in enumerate(order[:most]):
        _note(served, [tenant], max(0, number - concurrency))
    return served


def check_share(real: Served, ideal: Served) -> None:
    """The quiet ones wait hardly longer than in the ideal queue, and floods get hardly more beside them.

    Floods may have one delivery in eight more: see `BESIDE`.
    """
    floods = {"real": _floods(real), "ideal": _floods(ideal)}
    assert p99(real.waits) <= TIMES * p99(ideal.waits) + BESIDE, floods
    assert floods["real"] <= TIMES * floods["ideal"] + len(real.order) / 8 + BESIDE, floods


def _floods(served: Served) -> int:
    return Counter(map(is_flood, served.order))[True]


def newcomers(
    write: Callable[[str], None],
    read: Callable[[int], list[str]],
    batch: int,
    reads: int,
    rng: random.Random,
    *,
    together: bool = True,
) -> list[int]:
    """Waits in deliveries of quiet messages, each of a new tenant, that are written at random while floods are served.

    What one read delivers comes *together*, or one after the other. None is written in the last quarter, so that all
    can come; one that does not has waited until the end.
    """
    came: dict[str, int] = {}
    waits: list[int] = []
    done = 0
    for number in range(reads):
        for _ in range(batch if number < 0.75 * reads else 0):
            if rng.random() < CHANCE:
                tenant = f"quiet-{len(came)}"
                came[tenant] = done
                write(tenant)
        found = read(batch)
        before = [done if together else done + at for at in range(len(found))]
        waits += [so_far - came[each] for so_far, each in zip(before, found, strict=True) if each in came]
        done += len(found)
    return waits + [done] * (len(came) - len(waits))
