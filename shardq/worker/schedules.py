"""The schedules of a worker's queues, which it attends to once a minute.

A worker that works until its queues are empty does not: the messages that it is called for are there already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from shardq.client import Queue
from shardq.client.parted import PartedQueue
from shardq.errors import BackendError, ClosedError, QueueMissing
from shardq.ops.queue.steps import Op
from shardq.ops.schedules.attend import Attendant
from shardq.worker.application import Application
from shardq.worker.plan import WorkerPlan
from shardq.worker.trouble import CALL_TIMEOUT, Trouble

log = logging.getLogger("shardq")
PERIOD: Final = 60.0
"""Seconds between two looks."""
MISSING: Final = 5.0
"""Seconds until a queue that is not there may be declared."""
UNKNOWN: Final = 1.0
"""Seconds until a queue that was not looked up yet may be known, so that it says whether it stores schedules."""


class ScheduleKeeper:
    """A thread for each queue of a worker: a queue that is slow to answer delays no other."""

    def __init__(self, queues: Sequence[Queue], application: Application | None, plan: WorkerPlan) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        if application is None or plan.until is not None:
            return
        declared = application.schedules()
        for name in declared.keys() - {queue.name for queue in queues}:
            if declared[name]:
                log.warning("the schedules of queue %r write nothing here: this worker does not read that queue", name)
        for queue in queues:
            attendant = Attendant(queue.state, queue.client.codecs, declared.get(queue.name, ()))
            self._threads.append(
                threading.Thread(
                    target=self._attend, args=(queue, attendant), name="shardq-worker-schedules", daemon=True
                )
            )

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

    def _attend(self, queue: Queue, attendant: Attendant) -> None:
        calls = f"calls of schedules of queue {queue.name!r}"
        trouble = Trouble(f"{calls} cannot be written", f"{calls} can be written again")
        wait = 0.0
        while not self._over.wait(wait):
            if attendant.is_idle:
                wait = PERIOD if queue.state.epoch else UNKNOWN
                continue
            wait = PERIOD
            try:
                queue.client.run(_look(queue, attendant))
                trouble.succeeded()
            except ClosedError:
                return
            except QueueMissing:  # it is not declared yet, which reads tell
                wait = MISSING
            except BackendError as error:
                trouble.failed(error)
                wait = min(PERIOD, UNKNOWN * 2 ** min(trouble.failures, 10))  # a full server is not asked all the time
            except Exception as error:
                log.exception("queue %r: its schedules wait: %s", queue.name, error)


def _look(queue: Queue, attendant: Attendant) -> Op[None]:
    """Look once. A queue with partitions is opened with all of them, before anything is asked of it."""
    if isinstance(queue, PartedQueue):
        yield from queue._opened(CALL_TIMEOUT, create=True)
    yield from attendant.attend(CALL_TIMEOUT)
