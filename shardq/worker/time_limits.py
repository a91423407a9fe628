"""The time limits of the jobs of one queue: a job that runs for longer has failed, whether or not it ends."""

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
from shardq.worker.state import LEASED, WorkerJob
from shardq.worker.trouble import log_overrun


class TimeLimits:
    """Looks whether the time of a job is over. No timer waits for that: it calls functions of users.

    The program's own function may take long. So a job whose time is over has not ended before it was: its slot is
    taken.

    *give* lets a thread run a function soon, each in a context that is *fresh*. *end* decides what becomes of a job: it
    returns False if the job has ended by itself.
    """

    def __init__(
        self,
        jobs: Queue,
        backoff: Backoff,
        give: Callable[[Callable[[], None]], None],
        fresh: Fresh,
        end: Callable[[WorkerJob, Outcome], bool],
    ) -> None:
        self._queue, self._clock, self._backoff = jobs, jobs.state.clock, backoff
        self._give, self._fresh, self._end = give, fresh, end
        self._lock = threading.Lock()
        self._told: dict[
            WorkerJob, list[Callable[[], object]]
        ] = {}  # and the function to call when the program has heard

    def start(self, job: WorkerJob) -> Entry | None:
        """Note that *job* starts. Return the timer's entry for its time limit, if it has one: cancel it at the end."""
        job.started = self._clock.monotonic()
        return None if job.call.limit is None else self._look_at(job, job.started + job.call.limit)

    @property
    def tells(self) -> bool:
        """Whether the program is hearing of any job now."""
        return bool(self._told)

    def is_told(self, job: WorkerJob) -> bool:
        """Return whether the program is hearing now that the time of *job* is over."""
        return job in self._told

    def after(self, job: WorkerJob, call: Callable[[], object]) -> None:
        """Call *call* when the program has heard that the time of *job* is over; at once if it is not hearing of it."""
        with self._lock:
            calls = self._told.get(job)
            if calls is not None:
                calls.append(call)
                return
        call()

    def wait(self, job: WorkerJob) -> None:
        """Wait until the program has heard that the time of *job* is over, if it is hearing of it."""
        if self.is_told(job):
            told = threading.Event()
            self.after(job, told.set)
            told.wait()

    def _look_at(self, job: WorkerJob, when: float) -> Entry:
        return self._queue.client.timer.call_at(when, self._give, partial(self._look, job))

    def _look(self, job: WorkerJob) -> None:
        if job.message != LEASED:
            return
        if (then := self._next_look(job)) is not None:
            self._look_at(job, then)
            return
        self._fresh().run(self._fail, job)

    def _next_look(self, job: WorkerJob) -> float | None:
        """Return when to look again, since *job* cannot have run for its limit by now. None if it has.

        One that waits in a batch for others begins when that does.
        """
        now = self._clock.monotonic()
        over = (job.started or now) + (job.call.limit or 0.0)
        return over if over > now else None

    def _fail(self, job: WorkerJob) -> None:
        late, outcome = guard.overdue(job, self._backoff)
        self._told[job] = []  # before it is ended, since it may end at once
        try:
            if self._end(job, outcome):
                log_overrun(job, outcome, self._queue.state.config.max_deliveries)
                job.call.tell(job.delivery, late)
        finally:
            with self._lock:
                calls = self._told.pop(job)
            for call in calls:
                call()
