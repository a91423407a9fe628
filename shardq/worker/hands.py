"""Threads that run plain functions for an event loop.

They are daemons: whoever ends the process waits for none of them. What a function returned or raised comes back beside
a bare wake-up, never in a future, which takes no StopIteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Hands:
    """As many threads as there are functions to run. One that has ended a function takes the next one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._threads = 0
        self._awaited: set[_Errand] = set()
        self._running: set[_Errand] = set()

    @property
    def running(self) -> int:
        """How many functions run."""
        return len(self._running)

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Await a plain function, which runs in a copy of this context.

        It does not end before the function has, even if it is cancelled: so whoever awaits it holds what the thread
        uses. Only `close` ends it earlier.
        """
        errand = _Errand(function, args)
        self._awaited.add(errand)
        try:
            if len(self._awaited) > self._threads:
                self._begin_thread()
            self._todo.put(errand)
            await errand.ended()
        finally:
            self._awaited.discard(errand)
        error, errand.error = errand.error, None
        try:
            if error is not None:
                raise error
            return errand.value
        finally:
            del error  # whose traceback has this frame: nothing else would free them soon

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._live, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this process can have no more threads; the others go on
            if not self._threads:
                raise
            return
        self._threads += 1

    def _live(self) -> None:
        while (errand := self._todo.get()) is not None:
            self._running.add(errand)
            errand.do()
            self._running.discard(errand)
            errand.tell()
            del errand  # else an idle thread keeps what it has returned

    async def close(self) -> None:
        """Let idle threads end, the others when their functions do, for which nobody waits any more."""
        for _ in range(self._threads):
            self._todo.put(None)
        for errand in self._awaited:
            errand.give_up()
        while self._awaited:  # noqa: ASYNC110 (for a pass or two of the loop)
            await asyncio.sleep(0)


class _Errand:
    """A function that is run, and who awaits it."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self._context, self._loop = contextvars.copy_context(), asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] = self._loop.create_future()
        self._is_over = False
        self.value: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        """Run the function, unless nobody waits for it any more."""
        if self._is_over:
            return
        try:
            self.value = self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
            self.error = error

    def tell(self) -> None:
        """Wake who awaits it, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)

    def give_up(self) -> None:
        """End the wait, though the function goes on."""
        self.error = asyncio.CancelledError()
        self._end()

    def _end(self) -> None:
        self._is_over = True
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def ended(self) -> None:
        """Wait until it has ended. Raise the CancelledError that came meanwhile only then."""
        cancelled: BaseException | None = None
        while not self._is_over:
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancelled = error
                self._waiter = self._loop.create_future()
        if cancelled is not None:
            raise cancelled
