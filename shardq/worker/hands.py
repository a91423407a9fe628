"""Threads that run plain functions for an event loop.

They are daemons: whoever ends the process waits for none of them. What a function returned or raised comes back in a
list beside a bare wake-up, never in a future, which takes no StopIteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Hands:
    """As many threads as there are functions that run. One that has ended a function takes the next one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self.running = 0
        """How many functions run."""
        self._awaited: set[asyncio.Future[None]] = set()
        self._is_closed = False

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Await a plain function, which runs in a copy of this context.

        It does not end before the function has, even if it is cancelled: so whoever awaits it holds what the thread
        uses. Only `close` ends it earlier.
        """
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        found: list[tuple[Any, BaseException | None]] = []
        ended: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                found.append((context.run(function, *args), None))
            except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
                found.append((None, error))
            with self._changed:
                self.running -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_wake, ended)

        self._awaited.add(ended)
        try:
            self._give(work)
            cancelled = await self._wait(ended)
        finally:
            self._awaited.discard(ended)
        if cancelled is not None:
            raise cancelled
        value, error = found[0]
        if error is not None:
            raise error
        return value

    async def _wait(self, ended: asyncio.Future[None]) -> BaseException | None:
        """Wait until it has *ended*. Return the CancelledError that came meanwhile."""
        cancelled: BaseException | None = None
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError as error:
                cancelled = error
        return asyncio.CancelledError() if ended.cancelled() else cancelled

    def _give(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._todo.append(work)
            if self._idle < len(self._todo):
                self._begin_thread()
            self._changed.notify()

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._live, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this process can have no more threads; the others go on
            if not self._threads:
                self._todo.pop()
                raise
            return
        self._threads += 1

    def _live(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._todo or self._is_closed)
            self._idle -= 1
            if not self._todo:
                return None
            self.running += 1
            return self._todo.popleft()

    async def close(self) -> None:
        """Let idle threads end, the others when their functions do, for which nobody waits any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for ended in self._awaited:
            ended.cancel()
        while self._awaited:  # noqa: ASYNC110 (for a pass or two of the loop)
            await asyncio.sleep(0)


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
