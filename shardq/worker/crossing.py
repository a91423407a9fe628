"""Between the threads of a worker and an event loop: a function of one kind calls one of the other.

Results and errors come back in a list beside a bare wake-up, never in a future, which takes no StopIteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from shardq.client import AsyncDelivery, AsyncQueue, Delivery
from shardq.client.face import AsyncFace
from shardq.errors import ClosedError

Found: TypeAlias = list[tuple[Any, BaseException | None]]
"""The result or the error of a function; empty until then."""


def _face(held: Delivery, queue: AsyncQueue) -> AsyncFace:
    if type(held) is Delivery:
        return AsyncFace(held, queue)
    from shardq.client.part_face import AsyncPartFace  # few programs have any

    return AsyncPartFace(held, queue)


class Crossing:
    """Between the threads of one lane and *loop*. *give* lets a thread of the lane run a function."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, give: Callable[[Callable[[], None]], None], queue: AsyncQueue
    ) -> None:
        self.loop, self.queue = loop, queue
        self.face: Callable[[Delivery], AsyncDelivery] = partial(_face, queue=queue)
        """Returns what the lane holds, for an async function."""
        self._give = give
        self._running: set[asyncio.Future[None]] = set()
        self._awaited: set[asyncio.Future[None]] = set()
        self._is_closed = False
        self._asked = self._answered = 0

    @property
    def running(self) -> int:
        """How many plain functions run that async ones wait for."""
        return len(self._running)

    def check_open(self) -> None:
        """ClosedError if the program has closed the client of its loop, by which a lane reads nothing."""
        if self.queue.client._closed:
            raise ClosedError("the client of this worker was closed")

    def answers(self) -> bool:
        """Return whether the loop has run since this was called before; one call at a time."""
        has_run = self._answered == self._asked
        if has_run:
            self._asked += 1
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._answer)
        return has_run

    def _answer(self) -> None:
        self._answered = self._asked

    async def in_hand(self, function: Callable[..., Any], *args: Any) -> Any:
        """Await a plain function, which a thread runs in a copy of this context.

        It does not end before the function has, even if it is cancelled: so the caller that awaits it holds what the
        thread uses. Only `close` ends it earlier.
        """
        if self._is_closed:
            raise asyncio.CancelledError
        context, found = contextvars.copy_context(), Found()
        ended: asyncio.Future[None] = self.loop.create_future()

        def work() -> None:
            self._running.add(ended)
            try:
                found.append((context.run(function, *args), None))
            except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
                found.append((None, error))
            self._running.discard(ended)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(_wake, ended)

        self._awaited.add(ended)
        try:
            self._give(work)
            cancelled = await until(ended)
        finally:
            self._awaited.discard(ended)
        if cancelled is not None:
            raise cancelled
        return _value_of(found)

    def in_loop(self, tasks: set[asyncio.Task[None]], function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Wait in a thread for an async function, which runs in a copy of this context. *tasks* has its task meanwhile.

        RuntimeError if the loop is closed.
        """
        context, found, over = contextvars.copy_context(), Found(), threading.Lock()
        over.acquire()

        async def run() -> None:
            try:
                found.append((await function(*args), None))
            except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
                found.append((None, error))

        def end(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if not found:  # it was cancelled before its first step
                found.append((None, asyncio.CancelledError()))
            over.release()

        def begin() -> None:
            task = self.loop.create_task(run(), context=context)
            tasks.add(task)
            task.add_done_callback(end)

        self.loop.call_soon_threadsafe(begin)
        over.acquire()
        return _value_of(found)

    async def close(self) -> None:
        """Let nobody in the loop wait for a thread any more."""
        self._is_closed = True
        for ended in self._awaited:
            ended.cancel()
        while self._awaited:  # noqa: ASYNC110 (for a pass or two of the loop)
            await asyncio.sleep(0)


async def until(ended: asyncio.Future[None]) -> BaseException | None:
    """Wait until it has *ended*, even if this is cancelled. Return the CancelledError that came meanwhile."""
    cancelled: BaseException | None = None
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            cancelled = error
    return asyncio.CancelledError() if ended.cancelled() else cancelled


def apart(function: Callable[[], object], name: str) -> asyncio.Future[None]:
    """Run a *function*, which raises nothing, in a thread of its own. Return what is done when it has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def work() -> None:
        function()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_wake, ended)

    threading.Thread(target=work, name=name, daemon=True).start()
    return ended


def _value_of(found: Found) -> Any:
    value, error = found.pop()
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # whose traceback has this frame: nothing else would free them soon


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
