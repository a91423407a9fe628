"""What a pod's worker tells of itself: the beats of a real worker, by a made-up clock."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

from shardq import Delivery, Queue
from shardq.worker.beats import Beats
from shardq.worker.state import BUSY, WorkerJob

PERIOD: Final = 15.0
"""Seconds between two beats. A worker beats each 5 s, and counts as gone after 30 s: two of three are left out."""


class Telling:
    """The beats of one worker."""

    def __init__(self, queue: Queue, slots: int) -> None:
        self._queue = queue
        self._held: set[WorkerJob] = set()
        self.lock = threading.Lock()
        self.state: Any = SimpleNamespace(held=self._held)
        self._beats = Beats("day")
        self._beats.start()
        self._pulse = self._beats.pulse(self, queue, slots)

    def children(self) -> Sequence[int]:
        """Return the ids of its child processes."""
        return ()

    def begin(self, delivery: Delivery) -> WorkerJob:
        """Take note of a job that begins."""
        job = WorkerJob(delivery)
        job.slot, job.started = BUSY, self._now()
        job.call = SimpleNamespace(name=None)
        self._held.add(job)
        return job

    def end(self, job: WorkerJob) -> None:
        """Take note of a job that is done."""
        job.ended = self._now()
        self._held.discard(job)
        self._pulse.ledger.count([job], "ack")

    def beat(self) -> None:
        """Tell."""
        if ride := self._pulse.ride(self._now()):
            self._queue.client.run(ride.alone(self._now() + 1))

    def stop(self) -> None:
        """Tell that the worker ends."""
        self._beats.end()

    def _now(self) -> float:
        return self._queue.client.clock.monotonic()
