"""What one tenant receives more than another that waits, too, and has its home in another partition."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from shardq import Delivery
from shardq.partitions.homes import home
from shardq.partitions.turns import LOOK_AFTER_WORK
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

HANDLERS = 16
JOBS = 800
MOST_JOBS = 4
"""So many of their longest jobs one of two that wait may get beyond the other: one more than in one partition."""
CALL = 0.0002
"""Seconds that a call takes."""
MOMENTS = 300
"""Moments at which leads are looked at."""


class Floods:
    """Tenants with jobs without end, and the handlers of some clients, by a clock of ours.

    `jobs` has when the work on each job of a tenant began, and when it ended.
    """

    def __init__(self, server: Server, name: str, lengths: dict[str, tuple[float, float]], clients: int) -> None:
        self.clock, self._lengths, self._dice = ManualClock(), lengths, random.Random(name)
        settings = {"streams": 4, "streams_per_shard": 2, "visibility_timeout": 600, "partitions": 3}
        self._queues = [
            clocked_client(server, self.clock)[0].queue(name, create=True, **settings)  # type: ignore[arg-type]
            for _ in range(clients)
        ]
        for queue in self._queues:
            queue.declare()
        self._queues[0].write_many([(None, tenant) for tenant in lengths] * 4)
        self.jobs: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def work(self, jobs: int) -> None:
        """Work on so many jobs, one for each handler at a time."""
        busy, number = list[tuple[float, int, int, Delivery]](), itertools.count()
        free = [at % len(self._queues) for at in range(HANDLERS)]
        for _ in range(jobs):
            at = free.pop()
            delivery = self._queues[at].read()
            self.clock.advance(CALL)
            tenant, now = str(delivery.shard_key), self.clock.monotonic()
            self._queues[at].write(None, shard_key=tenant)
            end = now + self._dice.uniform(*self._lengths[tenant])
            self.jobs[tenant].append((now, end))
            heapq.heappush(busy, (end, next(number), at, delivery))
            if not free:
                end, _, at, delivery = heapq.heappop(busy)
                self.clock.advance(max(0.0, end - self.clock.monotonic()))
                delivery.ack()
                free.append(at)

    def received(self, tenant: str, moments: Sequence[float]) -> list[float]:
        """For how long handlers had worked on its jobs at each moment."""
        return [sum(min(now, end) - begin for begin, end in self.jobs[tenant] if begin <= now) for now in moments]


def tenants(each: Sequence[int]) -> list[str]:
    """So many tenants for each partition."""
    names: list[list[str]] = [[] for _ in each]
    for number in range(500):
        names[home(f"t{number}", len(each))].append(f"t{number}")
    return [name for some, count in zip(names, each, strict=True) for name in some[:count]]


LENGTHS = {"20 ms": [(0.01, 0.03)], "half a second": [(0.25, 0.75)], "mixed": [(0.0, 0.5), (0.0, 5.0), (0.0, 50.0)]}


@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("each", [(1, 10, 9), (7, 7, 6)], ids=["one is alone", "even"])
def test_no_tenant_gets_far_ahead_of_one_of_another_partition(
    server: Server, queue_name: str, each: tuple[int, ...], lengths: list[tuple[float, float]], clients: int
) -> None:
    """Whatever the others' jobs take, and however many clients there are that know nothing of one another."""
    names = tenants(each)
    long = {name: lengths[at % len(lengths)] for at, name in enumerate(names)}
    floods = Floods(server, queue_name, long, clients)
    floods.work(JOBS)
    end = floods.clock.monotonic()
    start = min(begin for jobs in floods.jobs.values() for begin, _ in jobs)
    moments = [start + (end - start) * at / MOMENTS for at in range(MOMENTS)]
    got = {name: floods.received(name, moments) for name in names}
    for one, other in itertools.permutations(names, 2):
        least = lead = 0.0
        for mine, its in zip(got[one], got[other], strict=True):
            least = min(least, mine - its)
            lead = max(lead, mine - its - least)
        bound = MOST_JOBS * max(long[one][1], long[other][1]) + clients * LOOK_AFTER_WORK
        assert lead <= bound, f"{one} got {lead:.3f} s more than {other}, {bound:.3f} may be"
