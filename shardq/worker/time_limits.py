"""The time limits of the jobs of one queue: what runs for longer has failed, whether or not it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from shardq.backoff import Backoff
from shardq.client import Queue
from shardq.timing import Entry
from shardq.worker import guard
from shardq.worker.contexts import Fresh
from shardq.worker.outcome import Outcome
from shardq.worker.state import LEASED, Job
from shardq.worker.trouble import RETURN_TIMEOUT, log_overrun

LOOK = 0.05
"""Seconds between two looks whether the program was told of all."""


class TimeLimits:
    """Looks whether the time of a job is over. No timer waits for that: it calls functions of users.

    *give* lets a thread run a function soon, each in a context that is *fresh*. *end* decides what becomes of a job: it
    returns False if the job has ended by itself.
    """

    def __init__(
        self,
        jobs: Queue,
        backoff: Backoff,
        give: Callable[[Callable[[], None]], None],
        fresh: Fresh,
        end: Callable[[Job, Outcome], bool],
    ) -> None:
        self._queue, self._clock, self._backoff = jobs, jobs.state.clock, backoff
        self._give, self._fresh, self._end = give, fresh, end
        self._overdue: set[Job] = set()

    def start(self, job: Job) -> Entry | None:
        """Note that *job* starts. Return the timer's entry for its time limit, if it has one: cancel it at the end."""
        job.started = self._clock.monotonic()
        return None if job.call.limit is None else self._look_at(job, job.started + job.call.limit)

    def wait_told(self) -> bool:
        """Wait until the program was told of all jobs that were ended here, for RETURN_TIMEOUT at most."""
        until, pause = self._clock.monotonic() + RETURN_TIMEOUT, threading.Event()
        while self._overdue and self._clock.monotonic() < until:
            pause.wait(LOOK)
        return not self._overdue

    def _look_at(self, job: Job, when: float) -> Entry:
        return self._queue.client.timer.call_at(when, self._give, partial(self._look, job))

    def _look(self, job: Job) -> None:
        if job.message != LEASED:
            return
        if (then := self._next_look(job)) is not None:
            self._look_at(job, then)
            return
        self._overdue.add(job)
        try:
            self._fresh().run(self._fail, job)
        finally:
            self._overdue.discard(job)

    def _next_look(self, job: Job) -> float | None:
        """Return when to look again, since *job* cannot have run for its limit by now. None if it has.

        One that waits in a batch for others begins when that does.
        """
        now = self._clock.monotonic()
        over = (job.started or now) + (job.call.limit or 0.0)
        return over if over > now else None

    def _fail(self, job: Job) -> None:
        late, outcome = guard.overdue(job, self._backoff)
        if self._end(job, outcome):  # at last the program is told, since that may take long
            log_overrun(job, outcome, self._queue.state.config.max_deliveries)
            job.call.tell(job.delivery, late)
