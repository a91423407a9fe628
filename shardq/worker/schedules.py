"""The schedules of a worker's queues, which it attends to once a minute.

A worker that works until its queues are empty does not: what it is called for is there already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from shardq.client import Queue
from shardq.errors import BackendError, ClosedError, QueueMissing
from shardq.model.schedule import FixedSchedule
from shardq.ops.schedules.attend import Attendant
from shardq.worker.application import Application
from shardq.worker.plan import Plan
from shardq.worker.trouble import CALL_TIMEOUT, Trouble

log = logging.getLogger("shardq")
PERIOD: Final = 60.0
"""Seconds between two looks."""
MISSING: Final = 5.0
"""Seconds until a queue that is not there may be declared."""
UNKNOWN: Final = 1.0
"""Seconds until a queue that was not looked up yet may be known, so that it says whether it stores schedules."""


class Attended:
    """One queue whose schedules a worker attends to."""

    def __init__(self, queue: Queue, schedules: Sequence[FixedSchedule]) -> None:
        self.queue = queue
        self._attendant = Attendant(queue.state, queue.client.codecs, schedules)
        self._trouble = Trouble(queue.name, "writing the calls of schedules")
        self.op = self._attendant.attend
        self.is_over, self._failures = False, 0

    def pause(self) -> float | None:
        """Return for how many seconds there is nothing to ask; None if there is."""
        if not self._attendant.is_idle:
            return None
        return PERIOD if self.queue.state.epoch else UNKNOWN

    def done(self, error: Exception | None) -> float:
        """Note how a look went. Return how many seconds until the next one."""
        if error is None:
            self._trouble.succeeded()
            self._failures = 0
            return PERIOD
        if isinstance(error, ClosedError):
            self.is_over = True
            return PERIOD
        if isinstance(error, QueueMissing):  # it is not declared yet, which reads tell
            return MISSING
        if not isinstance(error, BackendError):
            log.error("queue %r: its schedules wait: %s", self.queue.name, error, exc_info=error)
            return PERIOD
        self._trouble.failed(error)
        self._failures += 1
        return float(min(PERIOD, UNKNOWN * 2 ** min(self._failures, 10)))  # a full server is not asked all the time


def attended(queues: Sequence[Queue], application: Application | None, plan: Plan) -> list[Attended]:
    """Return the queues whose schedules a worker attends to. Those of a queue that it does not read are told."""
    if application is None or plan.until is not None:
        return []
    declared = application.schedules()
    for name in declared.keys() - {queue.name for queue in queues}:
        if declared[name]:
            log.warning("the schedules of queue %r write nothing here: this worker does not read that queue", name)
    return [Attended(queue, declared.get(queue.name, ())) for queue in queues]


class Schedules:
    """A thread for each queue of a worker: a queue that is slow to answer delays no other."""

    def __init__(self, queues: Sequence[Queue], application: Application | None, plan: Plan) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._attend, args=(queue, each), name="shardq-worker-schedules", daemon=True)
            for queue, each in zip(queues, attended(queues, application, plan), strict=False)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End. A look that is under way ends by itself."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:  # else the worker has failed before it began
                thread.join(CALL_TIMEOUT)

    def _attend(self, queue: Queue, each: Attended) -> None:
        wait = 0.0
        while not (each.is_over or self._over.wait(wait)):
            pause = each.pause()
            if pause is not None:
                wait = pause
                continue
            try:
                queue.client.run(each.op(CALL_TIMEOUT))
            except Exception as error:  # noqa: BLE001 (told, and tried again)
                wait = each.done(error)
            else:
                wait = each.done(None)
