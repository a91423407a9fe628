"""A worker's counts of the jobs of one queue: by task and by tenant, and how long these waited. No I/O.

It is bounded, whatever tasks and tenants come: those with fewest jobs are folded into others when there are too many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from random import random
from threading import Lock
from typing import Final, NamedTuple

from shardq.model.worker_status import PICKUP_BOUNDS
from shardq.protocol.beats import BUCKETS, MAX_MINUTE_TASKS, MAX_RANK, OTHER, TaskCount, TenantCount
from shardq.worker.outcome import Verb
from shardq.worker.state import WorkerJob

WINDOW: Final = 60.0
"""Seconds of the last minute."""
MAX_JOBS_ONE_BY_ONE: Final = 1000
"""Jobs between two beats that are looked at one by one."""
JOBS_OF_SAMPLE: Final = 8
"""Jobs beyond that for which one stands that is chosen by chance."""
PART_SECONDS: Final = 5.0
"""Seconds whose beats are put together, so that the last minute has 13 parts at most."""
MAX_TENANTS: Final = 128
"""Tenants that are known between two beats before those with fewest jobs are folded."""
KEPT_TENANTS: Final = 48
"""Tenants that stay then."""
_BOUNDS: Final = PICKUP_BOUNDS[:-1]

Row = list[float]
"""Numbers of a task (jobs done, failed, their seconds, 16 buckets) or a tenant (jobs, their seconds, 16 buckets)."""
_TASK_HEAD: Final = 3
_TENANT_HEAD: Final = 2


class Counts:
    """The counts between two beats."""

    __slots__ = ("at", "others", "tasks", "tenants")

    def __init__(self) -> None:
        self.at = 0.0
        self.tasks: dict[str, Row] = {}
        self.tenants: dict[str | bytes, Row] = {}
        self.others: Row = [0.0] * (_TENANT_HEAD + BUCKETS)

    def add(self, other: Counts) -> None:
        """Add what *other* has."""
        for name, row in other.tasks.items():
            _add(self.tasks.get(name) or self.task(name), row)
        for key, row in other.tenants.items():
            _add(self.tenants.get(key) or self.tenant(key), row)
        _add(self.others, other.others)

    def task(self, name: str) -> Row:
        """Return the row of a task that has none yet: that of all others, if there are too many."""
        if len(self.tasks) >= MAX_MINUTE_TASKS:
            name = OTHER
        return self.tasks.setdefault(name, [0.0] * (_TASK_HEAD + BUCKETS))

    def tenant(self, key: str | bytes) -> Row:
        """Return the row of a tenant that has none yet. If there are too many, those with fewest jobs go first."""
        if len(self.tenants) >= MAX_TENANTS:
            self.fold(KEPT_TENANTS)
        return self.tenants.setdefault(key, [0.0] * (_TENANT_HEAD + BUCKETS))

    def fold(self, most: int) -> None:
        """Keep *most* tenants, and count the others together."""
        by_jobs = sorted(self.tenants.items(), key=lambda item: -item[1][0])
        for _, row in by_jobs[most:]:
            _add(self.others, row)
        self.tenants = dict(by_jobs[:most])


class LedgerTold(NamedTuple):
    """A beat's report on the last minute, and on the work since the last one."""

    tasks: Mapping[str, TaskCount]
    tenants: Mapping[str | bytes, TenantCount]
    others: Sequence[int]


class Ledger:
    """The counts of one queue's jobs. Safe across threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._now = Counts()
        self._parts: deque[Counts] = deque()
        self._work = Counts()
        self._seen = 0  # jobs since the last beat
        self.ran = 0.0
        """For how many seconds those ran that were counted."""

    def count(self, jobs: Sequence[WorkerJob], verb: Verb) -> None:
        """Count jobs that were settled so. Those that were given back count for nothing.

        If many were done, one stands for several, so that a short job costs no more than before; each that failed
        counts by itself. So sums are exact, and what they are made of is within chance.
        """
        if not jobs or verb == "give back":
            return
        with self._lock:
            self._seen += len(jobs)
            if verb != "ack":
                for job in jobs:
                    self._count(job, 1, 1)
            elif self._seen <= MAX_JOBS_ONE_BY_ONE:
                for job in jobs:
                    self._count(job, 1, 0)
            else:
                for first in range(0, len(jobs), JOBS_OF_SAMPLE):
                    stands_for = min(JOBS_OF_SAMPLE, len(jobs) - first)
                    self._count(jobs[first + int(random() * stands_for)], stands_for, 0)

    def _count(self, job: WorkerJob, times: int, place: int) -> None:
        """Count a job *times* times, as done (0) or failed (1). The caller has the lock."""
        counts, name, received = self._now, job.call.name, job.delivery.received
        if name is None:
            name = job.delivery.task
        took = job.ended - job.started if job.started and job.ended else 0.0
        seconds = times * took
        self.ran += seconds
        row = counts.tasks.get(name) or counts.task(name)
        row[place] += times
        row[2] += seconds
        row[3 + bisect_left(_BOUNDS, took)] += times
        row = counts.tenants.get(received.shard_key) or counts.tenant(received.shard_key)
        row[0] += times
        row[1] += seconds
        row[2 + bisect_left(_BOUNDS, received.pickup_delay)] += times

    def told(self, now: float) -> LedgerTold:
        """Return what was done in the minute before local time *now*. A beat asks each time."""
        with self._lock:
            part, self._now, self._seen = self._now, Counts(), 0
        for name, row in part.tasks.items():
            _add(self._work.tasks.get(name) or self._work.task(name), row)
        parts = self._parts
        # The oldest ones must not be put together: they would be as young as the next one, beat by beat.
        if parts and parts[-1].at // PART_SECONDS == now // PART_SECONDS:
            parts[-1].add(part)
        else:
            parts.append(part)
        parts[-1].at = now
        while parts[0].at <= now - WINDOW:
            parts.popleft()
        found = Counts()
        for each in parts:
            found.add(each)
        found.fold(MAX_RANK)
        return LedgerTold(
            {name: task_count(row) for name, row in found.tasks.items()},
            {key: TenantCount(int(row[0]), row[1], _whole(row[_TENANT_HEAD:])) for key, row in found.tenants.items()},
            _whole(found.others[_TENANT_HEAD:]),
        )

    def work(self) -> Mapping[str, TaskCount]:
        """Return what was done of each task since this was asked last; `untold` takes it back."""
        work, self._work = self._work, Counts()
        return {name: task_count(row) for name, row in work.tasks.items()}

    def untold(self, work: Mapping[str, TaskCount]) -> None:
        """Count *work* once more, since it was not told."""
        for name, each in work.items():
            row = self._work.tasks.get(name) or self._work.task(name)
            _add(row, [each.done, each.failed, each.seconds, *each.buckets])


def task_count(row: Row) -> TaskCount:
    """Return the numbers of a task."""
    return TaskCount(int(row[0]), int(row[1]), row[2], _whole(row[_TASK_HEAD:]))


def _add(row: Row, more: Sequence[float]) -> None:
    for at, number in enumerate(more):
        if number:
            row[at] += number


def _whole(numbers: Sequence[float]) -> list[int]:
    return [int(each) for each in numbers]
