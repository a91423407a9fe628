"""Slots that work on a real queue by a clock that they move: what a job takes passes at once.

An outlook says when something is served. To see whether it is, nothing needs to take long: the clock goes to the end of
the job that ends next, which is acked, and another one is read. The server sees the reads and acks of so many slots in
the order in which they would have come, at the times at which they would have come.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from shardq import Delivery, Queue
from shardq.model.minute import Minute
from shardq.model.worker_status import TaskWork, TenantWork, WorkerStatus
from shardq.outlook.facts import Facts
from shardq.testing import ManualClock

POLL = 0.2
"""Seconds after which a free slot reads again that found nothing, as limits may allow something then."""
LONGEST = 100_000.0
"""Seconds after which what was to be served never will."""


@dataclass
class Pool:
    """So many `slots` on a queue. A job of a shard key takes `costs` seconds, of each other one second.

    `watched` is the number of the message of each shard key that is waited for; `served_at` says when it was read.
    """

    queue: Queue
    clock: ManualClock
    slots: int
    rng: random.Random
    costs: Mapping[str, float] = field(default_factory=dict)
    watched: dict[str, int] = field(default_factory=dict)
    served_at: dict[str, float] = field(default_factory=dict)
    delivered: int = 0
    done: Counter[str] = field(default_factory=Counter)
    took: Counter[str] = field(default_factory=Counter)
    since: float = 0.0
    _running: list[tuple[float, int, Delivery, float]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def now(self) -> float:
        """The time."""
        return self.clock.wall()

    def forget(self) -> None:
        """Count what is done from now on."""
        self.done, self.took, self.since = Counter(), Counter(), self.now

    def run(self, enough: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Work until it is *enough*. *meanwhile* may write something, each time the clock has moved."""
        last = self.now + LONGEST
        while not enough() and self.now < last:
            meanwhile()
            self._read(())
            at = self._running[0][0] if self._running else self.now + POLL
            if len(self._running) < self.slots:
                at = min(at, self.now + POLL)
            self.clock.advance(max(0.0, at - self.now))
            while self._running and self._running[0][0] <= self.now + 1e-9:
                _, _, delivery, cost = heapq.heappop(self._running)
                self.done[str(delivery.shard_key)] += 1
                self.took[str(delivery.shard_key)] += cost  # type: ignore[assignment]
                self._read((delivery,))

    def _read(self, done: tuple[Delivery, ...]) -> None:
        free = self.slots - len(self._running)
        if free < 1:
            return
        for each in self.queue.read_many(free, ack=done, visibility_timeout=10_000):
            key = str(each.shard_key)
            cost = self.costs.get(key, 1.0) * self.rng.uniform(0.7, 1.3)
            heapq.heappush(self._running, (self.now + cost, next(self._numbers), each, cost))
            self.delivered += 1
            if each.payload == self.watched.get(key):
                self.served_at[key] = self.now

    def told(self, facts: Facts, workers: int = 1, written: float = 0.0) -> Facts:
        """Return *facts* with what so many workers would have told of the last minute, and the minutes before."""
        each_minute = 60.0 / (self.now - self.since) / workers
        jobs, seconds = sum(self.done.values()), sum(self.took.values())
        tenants = tuple(
            TenantWork(key, round(count * each_minute), self.took[key] / count, None)
            for key, count in self.done.most_common(20)
        )
        task = TaskWork("task", round(jobs * each_minute), 0, seconds / jobs)
        slots, busy = self.slots // workers, len(self._running) / workers
        found = [self._worker(f"w{number}", facts.now, slots, busy, task, tenants) for number in range(workers)]
        past = [self._minute(facts, ago, round(written * 60), task.done * workers) for ago in (3, 2, 1)]
        return replace(facts, workers=tuple(found), minutes=tuple(past))

    def _worker(
        self, name: str, now: float, slots: int, busy: float, task: TaskWork, tenants: tuple[TenantWork, ...]
    ) -> WorkerStatus:
        return WorkerStatus(
            name, "jobs", "working", now, now - 3600, "1", "host", 1, slots, busy, None, "", "", 0, task.done, 0,
            (task,), tenants,
        )  # fmt: skip

    def _minute(self, facts: Facts, ago: int, written: int, done: int) -> Minute:
        stats = facts.stats
        return Minute(
            facts.now - 60 * ago, written, done, 0, 0, stats.backlog, stats.runnable, 0, None, 1, self.slots, self.slots
        )
