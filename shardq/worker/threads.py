"""`Worker`: a lane of threads for each of its queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Unpack, cast

from shardq.client import Delivery, Queue
from shardq.errors import ConfigError
from shardq.model import DeliveryView
from shardq.worker.application import Application
from shardq.worker.checks import check_plain, weights_of
from shardq.worker.contexts import Contexts
from shardq.worker.empty import is_empty
from shardq.worker.lane import Lane
from shardq.worker.outcome import Verb
from shardq.worker.plan import PlanSettings, planned, plans
from shardq.worker.schedules import SchedulesThreads
from shardq.worker.signals import stopping
from shardq.worker.slots import shares
from shardq.worker.state import sum_of
from shardq.worker.telling import Teller
from shardq.worker.trouble import raised


class Worker:
    """Reads messages of *jobs* and calls `handle(delivery)` for each, in threads, until it is stopped.

    *jobs* is a queue, or several with their weights: `{jobs: 3, mails: 1}`. These share the slots of `concurrency` by
    their weights, and what one does not need the others use. *handle* may be a `Tasks`.

    A handler that returns acks its message; one that raises `Nack` or `Reject` does what they say. After any other
    exception the message is delivered again, after the backoff and with the error in `last_error`; after the queue's
    `max_deliveries` it becomes a dead letter. Leases are extended while handlers run. With `run_in="processes"` each
    handler runs in a child process, which is killed when the lease is lost or the time limit is over; if the process
    dies, its handler has failed. Settings are those of `shardq.worker.plan.Plan`. ConfigError for a bad one, or for an
    async handler.
    """

    def __init__(
        self,
        jobs: Queue | Mapping[Queue, int],
        handle: Callable[[Delivery], object] | Application,
        *,
        run_in: Literal["threads", "processes"] = "threads",
        **settings: Unpack[PlanSettings],
    ) -> None:
        self._plan = planned(Worker, settings, "run_in")
        weights = weights_of(jobs, Queue, "Worker", "AsyncWorker")
        check_plain(handle, run_in)
        self.application = handle if isinstance(handle, Application) else None
        self.limits = self.application if self.application and self.application.has_time_limits() else None
        self._forks = run_in == "processes"
        self.handle = cast("Callable[[DeliveryView], object]", handle)
        self.contexts = Contexts()
        self.teller = Teller(self._plan.on_dead, self.contexts.fresh)
        self._slots, own = shares(self._plan.concurrency, [*weights.values()])
        self._queues = [*weights]
        self._schedules = SchedulesThreads(self._queues, self.application, self._plan)
        self._lanes = [
            Lane(self, queue, plan, share, forks=self._forks)
            for queue, plan, share in zip(weights, plans(self._plan), own, strict=False)
        ]
        self._has_begun = False

    def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. After a BackendError it tries again until Redis answers; ConfigError, ServerUnfit and
        ClosedError are raised.
        """
        if self._has_begun:
            raise ConfigError("a Worker runs once: make a new one")
        self._has_begun = True
        with stopping(self.stop, self._kill_children, self._plan.signals is not False):
            try:
                for lane in self._lanes:
                    lane.start()
                with self._opened() as self.handle:
                    self.contexts.keep()
                    self._schedules.start()
                    self._work()
            finally:
                self._schedules.close()
                for lane in self._lanes:
                    lane.close()
                self.teller.close()

    def _opened(self) -> AbstractContextManager[Any]:
        if self.application is None or self._forks:  # each child process opens it
            return nullcontext(self.handle)
        return self.application.opened(self._queues[0].state.clock, self.contexts.fresh)

    def _work(self) -> None:
        """Let all lanes work, the first one in this thread. When one has ended, the others are stopped."""
        if self._slots is not None:
            self._slots.nudges += [lane.nudge for lane in self._lanes]
        failures: list[BaseException] = []

        def work(lane: Lane) -> None:
            try:
                lane.work()
            except BaseException as error:  # noqa: BLE001 (run raises it)
                failures.append(error)
            self.stop()

        first, *others = self._lanes
        threads = [
            threading.Thread(target=work, args=(lane,), name="shardq-worker-lane", daemon=True) for lane in others
        ]
        for thread in threads:
            thread.start()
        work(first)
        for thread in threads:
            thread.join()
        raised(failures[0] if failures else None)

    @property
    def tally(self) -> Mapping[Verb, int]:
        """How many messages were done ("ack"), failed ("nack"), rejected and given back so far."""
        return sum_of([lane.state.tally for lane in self._lanes])

    @property
    def hangs(self) -> int:
        """How many handlers run: after `run` has returned, those that went on when their grace was over.

        Their threads cannot be ended. A program that shall end all the same calls `os._exit`.
        """
        return sum(lane.state.busy for lane in self._lanes)

    def stop(self) -> None:
        """Ask `run` to end. May be called from any thread, handler or signal handler, and more than once."""
        for lane in self._lanes:
            lane.stop()

    def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do: a task of one may write to another."""
        if all(queue.client.run(is_empty(queue.state)) for queue in self._queues):
            self.stop()

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""
        return sum(lane.stuck() for lane in self._lanes) >= self._plan.concurrency

    def _kill_children(self) -> None:
        for lane in self._lanes:
            lane.kill_children()
