"""The measures of the jobs of one queue of a worker: how long they ran, how they ended, how many run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from shardq.client import Queue
from shardq.telemetry.calls import QueueMeter
from shardq.telemetry.instruments import (
    BUSY,
    CONSUMED,
    DEAD_LETTERED,
    LEASE_LOST,
    OLDEST_JOB,
    RETRIED,
    SLOTS,
    Instrument,
)
from shardq.telemetry.measures import unwatch, watch
from shardq.telemetry.tally import OTHER, Observed, TallySource
from shardq.worker.keeper import all_seen_lost, seen_lost
from shardq.worker.outcome import Outcome, Verb
from shardq.worker.state import BUSY as RUNS
from shardq.worker.state import WorkerJob, WorkerState

LEASE_ENDED: Final = "lease ended"
CANCELLED: Final = "cancelled"
REASONS: Final = (
    (RETRIED, ("retry", "time limit", "process died")),
    (DEAD_LETTERED, ("dead", "rejected", "time limit", "process died", "cannot decode")),
    (LEASE_LOST, (LEASE_ENDED, CANCELLED)),
)
"""The kinds of counts that each task may have, which begin at 0."""
MAX_BEGUN: Final = 30
"""Tasks whose counts begin at 0. Those of further ones begin with the first that is counted."""
_UNNAMED: Final = {"nack": "Nack", "reject": "Reject"}
"""The name of an outcome's error that has no class of its own."""


class MeterHost(Protocol):
    """A lane, as its meter sees it."""

    state: WorkerState
    lock: threading.Lock


class Meter:
    """Measures the *jobs* of a *lane*, which may run *slots* at once. It hears of them only if anybody wants that."""

    def __init__(self, lane: MeterHost, jobs: Queue, slots: int) -> None:
        self._lane, self._slots, self._clock = lane, slots, jobs.state.clock
        self._queue: QueueMeter = jobs._telemetry.meter
        self._source: TallySource | None = None

    def start(self, tasks: Sequence[str] | None) -> None:
        """Begin to report how many jobs run, for these *tasks*; None if a function runs them."""
        self._queue.begin(CONSUMED, "read")
        for task in ("",) if tasks is None else (*tasks[:MAX_BEGUN], OTHER):
            for instrument, reasons in REASONS:
                for reason in reasons:
                    self._queue.begin(instrument, reason, task)
        if tasks is not None:
            self._queue.begin(DEAD_LETTERED, "no such task", OTHER)
        self._source = watch((SLOTS, BUSY, OLDEST_JOB), self._present)  # who sees its slots sees its counts, too

    def close(self) -> None:
        """Tell nothing more of how many jobs run."""
        if self._source is not None:
            unwatch(self._source)

    def ended(self, job: WorkerJob, outcome: Outcome) -> None:
        """Measure a job that has ended. A decision while it ran comes first: it ran for too long."""
        outcome = job.outcome or outcome
        if outcome.verb != "give back" and job.started:
            task = job.call.name
            error = "" if outcome.verb == "ack" else outcome.error_type or _UNNAMED[outcome.verb]
            self._queue.processed(OTHER if task is None else task, job.ended - job.started, error)

    def settled(self, jobs: Sequence[WorkerJob], verb: Verb) -> None:
        """Count jobs that were settled so: those that are tried again, are dead, or whose lease was lost."""
        if verb == "ack":
            jobs = all_seen_lost(jobs)  # of most there is nothing to count
        if jobs:
            for what, count in Counter(_counted(job, verb) for job in jobs).items():
                if what is not None:
                    self._queue.counted(*what, count)

    def lost(self, job: WorkerJob) -> None:
        """Count a job whose lease is lost."""
        self._queue.counted(*_lost(job))

    def _present(self) -> Sequence[Observed]:
        """Return how many jobs may run and do run, and for how long the oldest one has."""
        with self._lane.lock:
            began = [job.started for job in self._lane.state.held if job.slot == RUNS and job.started and not job.ended]
            busy = self._lane.state.busy
        oldest = max(0.0, self._clock.monotonic() - min(began)) if began else 0.0
        labels = self._queue.labels()
        return (SLOTS, self._slots, labels), (BUSY, busy, labels), (OLDEST_JOB, oldest, labels)


def _counted(job: WorkerJob, verb: Verb) -> tuple[Instrument, str, str] | None:
    """Return as what a job counts that was settled so, with a reason and its task; None for nothing."""
    if seen_lost(job):
        return _lost(job)
    if job.delivery.dead:
        return DEAD_LETTERED, _reason(job, "rejected" if verb == "reject" else "dead"), _task(job)
    return (RETRIED, _reason(job, "retry"), _task(job)) if verb == "nack" else None


def _lost(job: WorkerJob) -> tuple[Instrument, str, str]:
    return LEASE_LOST, CANCELLED if job.delivery.cancelled else LEASE_ENDED, _task(job)


def _task(job: WorkerJob) -> str:
    """Return the name of a job's task. Anybody may write calls of others, so those have none of their own."""
    name: str | None = job.call.name
    return OTHER if name is None else name


def _reason(job: WorkerJob, otherwise: str) -> str:
    return (job.outcome.reason if job.outcome is not None else "") or otherwise
