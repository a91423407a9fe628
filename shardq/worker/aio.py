"""`AsyncWorker`: one event loop, in which a lane works for each of its queues."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Unpack, cast

from shardq.client import AsyncQueue
from shardq.errors import ConfigError
from shardq.worker.application import Application
from shardq.worker.async_lane import AsyncLane, Handler
from shardq.worker.checks import weights_of
from shardq.worker.contexts import Contexts
from shardq.worker.empty import is_empty
from shardq.worker.hands import Hands
from shardq.worker.outcome import Verb
from shardq.worker.plan import PlanSettings, planned, plans
from shardq.worker.schedules import SchedulesTasks
from shardq.worker.signals import MAX_WAIT, hosted, stopping
from shardq.worker.slots import shares
from shardq.worker.state import RUNNING, sum_of
from shardq.worker.telling import AsyncTeller


class AsyncWorker:
    """Reads messages of *jobs* and awaits `handle(delivery)` for each, in tasks, until it is stopped.

    *jobs* is a queue, or several with their weights: `{jobs: 3, mails: 1}`. These share the slots of `concurrency` by
    their weights, and what one does not need the others use. *handle* may be a `Tasks`.

    A handler that returns acks its message; one that raises `Nack` or `Reject` does what they say; after any other
    exception the message is delivered again, after the backoff. A handler is cancelled when its lease is lost or its
    time limit is over. Leases are extended from a thread, so that a handler that blocks the loop keeps its messages.
    Settings are those of `shardq.worker.plan.Plan`. ConfigError for a bad one, or for a handler that is not async.
    """

    handle: Handler

    def __init__(
        self,
        jobs: AsyncQueue | Mapping[AsyncQueue, int],
        handle: Handler | Application,
        **settings: Unpack[PlanSettings],
    ) -> None:
        self._plan = planned(AsyncWorker, settings)
        weights = weights_of(jobs, AsyncQueue, "AsyncWorker", "Worker")
        self._given = _checked(handle)
        self.application = handle if isinstance(handle, Application) else None
        self.limits = self.application if self.application and self.application.has_time_limits() else None
        self.contexts = Contexts()
        self.teller = AsyncTeller(self._plan.on_dead, self.contexts.fresh)
        self._hands = Hands("shardq-worker")
        self._slots, own = shares(self._plan.concurrency, [*weights.values()])
        self._queues = [*weights]
        self._schedules = SchedulesTasks(self._queues, self.application, self._plan)
        self._lanes = [
            AsyncLane(self, queue, plan, share)
            for queue, plan, share in zip(weights, plans(self._plan), own, strict=False)
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = False
        self._wake_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Work until `stop` is called or a signal comes; then finish what runs, give back the rest, and return.

        A worker runs once. After a BackendError it tries again until Redis answers; ConfigError, ServerUnfit and
        ClosedError are raised. When the task that awaits `run` is cancelled, the handlers are cancelled, too, and their
        messages are given back at once.
        """
        if self._loop is not None or self._lanes[0].state.life != RUNNING:
            raise ConfigError("an AsyncWorker runs once: make a new one")
        self._loop = asyncio.get_running_loop()
        wanted = not hosted() if self._plan.signals is None else self._plan.signals
        with stopping(self.stop, lambda: None, wanted):
            for lane in self._lanes:
                lane.start()
            if self._stop_requested:
                self._stop()
            try:
                async with self._opened() as self.handle:
                    self.contexts.keep()
                    self._wake_regularly()
                    self._schedules.start()
                    await self._until_over()
            finally:
                if self._wake_timer is not None:
                    self._wake_timer.cancel()
                await self._schedules.close()
                for lane in self._lanes:
                    lane.cancel_timer()
                    await self._hands.run(lane.close)  # the loop's own threads may hang in what users gave them
                await self.teller.close()
                await self._hands.close()

    def _opened(self) -> AbstractAsyncContextManager[Handler]:
        if self.application is not None:
            return self.application.opened_async(self._queues[0], self._hands, self.contexts.fresh)
        return nullcontext(cast("Handler", self._given))

    async def _until_over(self) -> None:
        if self._slots is not None:
            self._slots.nudges += [lane.nudge for lane in self._lanes]
        works = [asyncio.ensure_future(lane.work()) for lane in self._lanes]
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            self._stop()  # all were stopped, or one has failed
            await asyncio.wait(works)
        finally:
            for work in works:
                work.cancel()
            ended = await asyncio.gather(*works, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    def _wake_regularly(self) -> None:
        """Wake the loop each second, because Python runs signal handlers only while the main thread is awake."""
        self._wake_timer = asyncio.get_running_loop().call_later(MAX_WAIT, self._wake_regularly)

    @property
    def tally(self) -> Mapping[Verb, int]:
        """How many messages were done ("ack"), failed ("nack"), rejected and given back so far."""
        return sum_of([lane.state.tally for lane in self._lanes])

    @property
    def hangs(self) -> int:
        """How many functions run: after `run` has returned, those that went on when their grace was over.

        Plain ones run in threads, which cannot be ended. A program that shall end all the same calls `os._exit`.
        """
        return self._hands.running + sum(lane.state.busy for lane in self._lanes)

    def stop(self) -> None:
        """Ask `run` to end. May be called from any thread, handler or signal handler, and more than once."""
        self._stop_requested = True
        if self._loop is not None:
            self._lanes[0].call(self._stop)

    def _stop(self) -> None:
        for lane in self._lanes:
            lane.stop()

    async def end_if_empty(self) -> None:
        """Stop all lanes if nothing of any queue is left to do: a task of one may write to another."""
        for queue in self._queues:
            if not await queue.client.run(is_empty(queue.state)):
                return
        self._stop()

    def is_stuck(self) -> bool:
        """Whether no slot does anything useful any more."""
        return sum(lane.state.stuck for lane in self._lanes) >= self._plan.concurrency


def _checked(handle: Handler | Application) -> Handler | Application:
    if isinstance(handle, Application) or inspect.iscoroutinefunction(handle):
        return handle
    if not inspect.iscoroutinefunction(getattr(handle, "__call__", None)):  # noqa: B004
        raise ConfigError("an AsyncWorker needs an async handler (async def); plain functions run in a Worker")
    return handle
