"""The event loop as a pair of hands, which takes many async jobs at once.

Jobs are handed over by one call for all, and what has ended comes back by one call for all: a switch of threads costs
more than an empty job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from shardq.worker.contexts import Fresh
from shardq.worker.outcome import Outcome
from shardq.worker.state import WorkerJob

YIELD = 0.00002
"""Seconds that a thread leaves to the loop: Python runs one of them at a time, and to make a read takes 0.1 ms."""
Ended: TypeAlias = Sequence[tuple[WorkerJob, Outcome]]


class LoopHands:
    """Lets *loop* run async jobs by *run*, which ends with `over`, and reports those that have *ended*, in the loop.

    That may put more into the inbox: these begin at once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run: Callable[[WorkerJob], Coroutine[Any, Any, None]],
        ended: Callable[[Ended], None],
        fresh: Fresh,
    ) -> None:
        self._loop, self._run, self._ended, self._fresh = loop, run, ended, fresh
        self.inbox: deque[WorkerJob] = deque()
        """The jobs to begin with, when the loop is woken. It is as `deque` is: safe across threads."""
        self._done: list[tuple[WorkerJob, Outcome]] = []
        self._is_told = False

    def wake(self, *, reads_on: bool) -> None:
        """Wake the loop for the inbox, unless that is done already. The loop begins before its caller *reads on*."""
        if self.inbox and not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._begin)
            if reads_on:
                time.sleep(YIELD)

    def cancel(self, job: WorkerJob) -> None:
        """Cancel what runs for *job*. Any thread may call this."""
        self._loop.call_soon_threadsafe(self._cancel, job)

    def _begin(self) -> None:
        self._is_told = False
        inbox, loop, fresh = self.inbox, self._loop, self._fresh
        while inbox:
            job = inbox.popleft()
            job.handle = loop.create_task(self._run(job), context=fresh())

    def over(self, job: WorkerJob, outcome: Outcome) -> None:
        """Note the end of *job*. The task that ran it calls this."""
        self._done.append((job, outcome))
        if len(self._done) == 1:
            self._loop.call_soon(self._flush)

    def over_soon(self, job: WorkerJob, outcome: Outcome) -> None:
        """Do as `over`. Any thread may call this."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.over, job, outcome)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._ended(done)
        self._begin()

    def _cancel(self, job: WorkerJob) -> None:
        for task in (job.handle, *job.tasks):
            if isinstance(task, asyncio.Task):  # after its first step: one that is cancelled before that tells nobody
                self._loop.call_soon(task.cancel)
