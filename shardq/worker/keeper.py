"""The thread that extends leases, watches time limits, and gives the worker's sign of life.

The thread has connections of its own. So neither a handler that blocks the event loop nor handlers that use up the
client's connections can stop it. It looks at all jobs that the worker holds a few times per visibility timeout. These
are at most `concurrency + read_ahead` jobs, so that costs less than a timer for each message.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from shardq.client import Client
from shardq.client.base import BaseClient
from shardq.errors import BackendError, ClosedError
from shardq.ops import settle
from shardq.ops.settle import extended
from shardq.ops.state import QueueState
from shardq.worker.liveness import PULSE, show_alive
from shardq.worker.plan import Plan
from shardq.worker.state import BUSY, LEASED, Job

log = logging.getLogger("shardq")
UNKNOWN = 0.01
"""Seconds between two rounds until the queue's own visibility timeout is known."""
EXTEND_TIMEOUT = 2.0
"""Seconds that one extension may take, at most."""


class KeeperEvents(Protocol):
    """What the keeper calls, in its thread, when something happened."""

    def lost(self, job: Job) -> None:
        """The lease of *job* is over."""
        ...

    def overdue(self, job: Job) -> None:
        """The handler of *job* has run for longer than the time limit."""
        ...

    def is_responsive(self) -> bool:
        """Whether the worker still gets on, so that its sign of life may be given."""
        ...


class Keeper:
    """Extends the leases of *jobs* until `close`. The worker adds jobs to that set and removes them."""

    def __init__(self, client: BaseClient, queue: QueueState, jobs: set[Job], plan: Plan, events: KeeperEvents) -> None:
        self._worker_client, self._queue, self._jobs, self._plan, self._events = client, queue, jobs, plan, events
        self._clock = queue.clock
        self._client: Client | None = None
        self._over = threading.Event()
        self._shown = float("-inf")
        self._thread = threading.Thread(target=self._keep, name="shardq-lease-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and wait for it at most as long as one extension may take."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(EXTEND_TIMEOUT)

    def _keep(self) -> None:
        try:
            while not self._over.is_set():
                self._over.wait(self._guarded_round())
        finally:
            if self._client:
                self._client.close()

    def _guarded_round(self) -> float:
        try:
            return self._round()
        except Exception:  # without this thread every lease would be lost
            log.exception("keeping the leases of queue %r failed and will be tried again", self._queue.keys.name)
            return PULSE / 10

    def _round(self) -> float:
        """Extend the leases that are due, and report what ended; seconds until the next round."""
        visibility = self._plan.visibility_timeout or self._queue.config.visibility_timeout
        now = self._clock.monotonic()
        jobs = [job for job in self._jobs.copy() if job.message == LEASED]
        due = []
        for job in jobs:
            left = job.delivery.received.deadline - now
            if left <= 0:
                self._events.lost(job)
            elif left < visibility * 2 / 3:
                due.append(job)
        pause = min(PULSE, visibility / 6, self._until_overdue(jobs, now))
        if not self._queue.epoch:  # its settings are not known yet: its leases may be short
            pause = min(pause, UNKNOWN)
        if due:
            self._extend(due, visibility)
        if now - self._shown >= PULSE * 0.9 and self._events.is_responsive():
            self._shown = now
            show_alive(self._plan.alive)
        return pause

    def _until_overdue(self, jobs: list[Job], now: float) -> float:
        limit = self._plan.time_limit
        if limit is None:
            return PULSE
        soonest = limit
        for job in jobs:
            if job.slot == BUSY and job.started:
                if (left := job.started + limit - now) <= 0:
                    self._events.overdue(job)
                else:
                    soonest = min(soonest, left)
        return soonest

    def _extend(self, jobs: list[Job], visibility: float) -> None:
        timeout = min(EXTEND_TIMEOUT, max(0.1, visibility / 6))
        if self._client is None:
            self._client = Client.beside(self._worker_client, timeout=timeout)
        state = self._client.state_of(self._queue.keys.name, {})
        sent = self._clock.monotonic()
        held = [job.delivery.received for job in jobs]
        try:
            results = self._client.run(settle.extend(state, held, visibility, timeout))
        except (BackendError, ClosedError) as error:  # the next round tries again, as long as the lease lasts
            log.debug("leases of queue %r were not extended: %s", self._queue.keys.name, error)
            return
        for job, before, result in zip(jobs, held, results, strict=True):
            if result in settle.LOST:
                self._events.lost(job)
            elif job.delivery.received is before:  # else the handler itself has extended it meanwhile
                job.delivery.received = extended(before, sent, visibility)
