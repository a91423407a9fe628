"""How coroutines wait on a queue: one task per queue runs the pump, as long as there are waiters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from shardq.drivers.async_link import AsyncLink
from shardq.drivers.async_links import AsyncLinks
from shardq.drivers.target import Address
from shardq.drivers.wire import CLOSED_WHILE_WAITING, MAX_PAUSE, MIN_PAUSE, Command, number_of, packed, told
from shardq.errors import ClosedError
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Armed, Op, Wait
from shardq.ops.read.give_back import give_back, recover
from shardq.ops.read.waiting import NO_TIME, ReadWaiter, Waiting, do_nothing
from shardq.timing import LoopTimer, Purgatory

T = TypeVar("T")
log = logging.getLogger("shardq")
CLOSE_TIMEOUT: Final = 5.0


class PumpSender(Protocol):
    """The part of the driver that is used here."""

    async def run(self, op: Op[T]) -> T:
        """Run an operation, and return its result."""

    async def arm(self, step: Armed) -> AsyncPendingRead:
        """Get a link for an armed read."""

    async def unblock(self, pending: AsyncPendingRead) -> None:
        """End the blocking wait of a pending read."""


class AsyncPendingRead:
    """A *link* to *address* for *commands*, whose answers must come within *limit* seconds.

    `server` is the address of the other end of its socket.
    """

    def __init__(
        self, links: AsyncLinks, link: AsyncLink, commands: tuple[Command, ...], limit: float, address: Address | None
    ) -> None:
        self._links, self._link, self._commands, self._limit = links, link, commands, limit
        self.address, self.server = address, link.peer
        link.silence = limit

    @property
    def number(self) -> int | None:
        """The id that the server gave the connection; None until that answer has come."""
        known = self._link.number
        return number_of(self._link.begun()) if known is None else known

    async def exchanged(self) -> list[Any]:
        """Send the commands, and wait for all answers."""
        try:
            answers = await self._link.ask(packed(self._commands), len(self._commands), self._limit)
            if self._link.number is None:
                self._link.number = number_of(answers)  # the next armed read need not ask
            return answers
        finally:
            self._links.give((self.address, True), self._link)


class Pumping:
    """Lets coroutines wait, and runs the pump of each queue in a task. Deadlines are in the client's *timer*."""

    def __init__(self, driver: PumpSender, timer: LoopTimer) -> None:
        self._driver = driver
        self._timer = timer
        self._purgatory = Purgatory(timer)
        self._closed = False
        self._tasks: dict[asyncio.Task[Any], Waiting | None] = {}

    async def wait(self, step: Wait) -> None:
        """Wait until the waiter of *step* is done. If it is cancelled then, its messages are given back."""
        state, waiter, waiting = step.state, step.waiter, step.waiter.waiting
        if self._closed:
            raise ClosedError(CLOSED_WHILE_WAITING)
        wake_up = asyncio.get_running_loop().create_future()
        waiter.wake = partial(_resolve, wake_up)
        waiting.join(waiter, self._purgatory, max(0.0, waiter.until - waiting.clock.monotonic()))
        if waiting.pump is None:
            waiting.pump = self._start(self._pump(step), waiting)
        try:
            await wake_up
        except asyncio.CancelledError:
            self._on_cancel(state, waiter)
            raise

    async def armed(self, step: Armed) -> list[Any]:
        """Return the answers to an armed read. End its blocking wait at `wake_at`, or when no waiter is left."""
        pending: AsyncPendingRead | None = None
        begun = answered = False

        async def unblock() -> None:
            pause = MIN_PAUSE
            while not answered:
                if pending is not None:
                    await self._driver.unblock(pending)
                if not answered:  # the wait had not begun, or its answers are on their way
                    await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)

        def end_wait() -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._start(unblock(), None)

        alarm = self._timer.call_at(step.wake_at, end_wait) if step.wake_at < NO_TIME else None
        step.waiting.end_wait = end_wait
        try:
            pending = await self._driver.arm(step)
            return told(step, await pending.exchanged())
        finally:
            answered = True
            step.waiting.end_wait = do_nothing
            if alarm is not None:
                alarm.cancel()

    async def aclose(self) -> None:
        """End all waits with ClosedError. Wait a while for pending reads, whose messages are given back."""
        self._closed = True
        idle = []
        for task, waiting in list(self._tasks.items()):
            if waiting is not None and waiting.release(failure=ClosedError(CLOSED_WHILE_WAITING)):
                waiting.end_wait()
            idle.append(task)
        if idle:
            await asyncio.wait(idle, timeout=CLOSE_TIMEOUT)
        for task in list(self._tasks):
            task.cancel()

    async def _pump(self, step: Wait) -> None:
        waiting = step.waiter.waiting
        try:
            await self._driver.run(step.pump(step.state))
        except Exception as error:
            log.exception("the pump of queue %r failed", step.state.keys.name)
            waiting.release(failure=error)
        finally:
            waiting.pump = None
            waiting.release()  # after a cancellation no waiter may wait in vain

    def _on_cancel(self, state: QueueState, waiter: ReadWaiter) -> None:
        outstanding = waiter.outstanding
        if waiter.cancel():
            if not waiter.waiting.waiters():
                waiter.waiting.end_wait()
        elif waiter.rows and outstanding:
            self._start(self._driver.run(give_back(state, waiter.rows, state.until())), None)
        elif outstanding:
            self._start(self._driver.run(recover(state, outstanding, state.until())), None)

    def _start(self, work: Coroutine[Any, Any, Any], waiting: Waiting | None) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = waiting
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # a failure is ignored: leases end by themselves


def _resolve(wake_up: asyncio.Future[None]) -> None:
    if not wake_up.done():
        wake_up.set_result(None)
