"""The parts of the client for asyncio alone: its loop, and the timer, the driver and the tasks that run there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Unpack

from shardq.client.base import BaseClient, ClientSettings
from shardq.client.leases import Leases
from shardq.drivers import AsyncDriver, Target
from shardq.drivers.async_sharing import AsyncSharing
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Op
from shardq.timing import LoopTimer


class AsyncBaseClient(BaseClient):
    """The part of `AsyncClient` that is not like `Client`."""

    timer: LoopTimer

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(target, **settings)
        loop = RunningLoop()
        self.timer = LoopTimer(loop, clock=self.clock)
        self.leases = Leases(self.timer, self.clock, loop.call)
        self._driver = AsyncDriver(self._target, timer=self.timer, **self._driver_settings())
        self._posting: AsyncSharing | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready_on: asyncio.AbstractEventLoop | None = None  # the loop, once `prepare` was there; None when closed
        self._pid = os.getpid()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stands: set[asyncio.Task[None]] = set()  # blocked reads at partitions, which nobody need wait for

    async def aclose(self) -> None:
        """Close every connection, and stop the embedded server if this client started one. Idempotent.

        In a forked child nothing is closed: the connections and the loop are the parent's. It raises nothing.

        >>> await client.aclose()
        """
        self._closed, self._ready_on = True, None
        if self._pid != os.getpid():
            return
        for stand in self._stands:
            stand.cancel()
        if self._stands:
            await asyncio.wait(self._stands, timeout=self.timeout)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.timeout)
        await self._driver.aclose()
        self.timer.close()
        self._stop_server()

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that runs. ClosedError if the client belongs to another one."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop or self._pid != os.getpid():
            raise ClosedError(
                "this AsyncClient belongs to another event loop or process; make one per loop, after the fork"
            )
        return loop

    async def _inspect(self, driver: AsyncDriver) -> None:
        """Look at the server. Several tasks may do so at once: no lock may be held while one waits."""
        await driver.run(self._inspection())

    def _start_posting(self) -> AsyncSharing:
        """Return what makes the calls of writers, with tasks of its own."""
        self._posting = self._driver.sharing
        return self._posting

    def _run_in_background(self, op: Op[Any]) -> None:
        """Start *op* in the background. Its failure is ignored."""
        task = asyncio.get_running_loop().create_task(self._driver.run(op))
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class RunningLoop:
    """The event loop that runs when this is first used, for the client's timer and callbacks. Any thread may use it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready_on: asyncio.AbstractEventLoop | None = None  # the loop, once `prepare` was there; None when closed
        self._thread = 0

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.Handle:
        """Call *callback* in *delay* seconds. From another thread (a worker's keeper) the handle may not cancel it."""
        if self._loop is None:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if threading.get_ident() == self._thread:
            return self._loop.call_later(delay, callback)
        return self._loop.call_soon_threadsafe(self._loop.call_later, delay, callback)

    def call(self, function: Callable[[], object]) -> None:
        """Call *function* soon; never if the loop is closed. A lease was inserted before, so the loop is known."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)
