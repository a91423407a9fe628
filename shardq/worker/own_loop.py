"""The event loop of a `Worker`, for what of its functions is async, and a client there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

from shardq.client import AsyncClient, AsyncQueue, Client, Queue
from shardq.model.failed import described
from shardq.worker.ending import Pool
from shardq.worker.signals import MAX_WAIT

log = logging.getLogger("shardq")
END_SECONDS: Final = 0.5
"""Seconds that the loop may take to answer at the end, and its last tasks to end."""
Told: TypeAlias = queue.SimpleQueue[BaseException | None]


class OwnLoop:
    """An event loop in a thread, a daemon, with a client beside *client*.

    It is no `asyncio.run`, which would wait at its end for whatever runs in threads.
    """

    def __init__(self, client: Client) -> None:
        self._client = AsyncClient.beside(client)
        self.loop = asyncio.new_event_loop()
        self.pool = Pool()
        self.loop.set_default_executor(self.pool)
        self._thread = threading.Thread(target=self._live, name="shardq-worker-loop", daemon=True)
        self._thread.start()
        self._is_held_up = False

    def _live(self) -> None:
        while True:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 (SystemExit of a task that a handler left behind)
                log.error("a task in the worker's event loop raised %s", described(error))
            else:
                return

    @contextlib.contextmanager
    def within(self, opened: AbstractAsyncContextManager[None]) -> Iterator[None]:
        """Enter *opened* in a task of the loop, in a copy of this context, and leave it in the same task.

        If a function holds up the loop, it is not left.
        """
        told = Told()
        end = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def live() -> None:
            failure: BaseException | None = None
            try:
                async with opened:
                    told.put(None)
                    await end.wait()
                    told.put(None)
            except BaseException as error:  # noqa: BLE001 (run raises it)
                failure = error
            told.put(failure)

        context = contextvars.copy_context()
        self.loop.call_soon_threadsafe(lambda: tasks.append(self.loop.create_task(live(), context=context)))
        _next(told)
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(end.set)
            try:
                _next(told, END_SECONDS)
            except queue.Empty:
                self._is_held_up = True
                log.warning("the worker ends while a function holds up its event loop, and does not leave lifespans")
            else:
                _next(told)

    def queue(self, queue: Queue) -> AsyncQueue:
        """Return this *queue* for the loop."""
        return self._client.queue_of(self._client.state_beside(queue.state))

    def close(self, first: Callable[[], Awaitable[None]]) -> None:
        """Await *first*, cancel what is left, and end the loop. One that has more to do continues, and nobody waits."""
        if self._is_held_up:
            return
        try:
            is_over = asyncio.run_coroutine_threadsafe(self._end(first), self.loop).result(2 * END_SECONDS)
        except Exception as error:  # noqa: BLE001 (so the loop goes on)
            log.warning("the worker's event loop does not end: %s", described(error))
            return
        if not is_over:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(END_SECONDS)
        if not self._thread.is_alive():
            self.pool.shutdown(wait=False)
            self.loop.close()

    async def _end(self, first: Callable[[], Awaitable[None]]) -> bool:
        """Return whether all tasks have ended."""
        await first()
        await self._client.aclose()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=END_SECONDS)
        await self.loop.shutdown_asyncgens()
        return not left


def _next(told: Told, timeout: float | None = None) -> None:
    """Wait for the next message, and raise it if it is an error. A main thread must wake for signals meanwhile.

    queue.Empty if none comes within *timeout* seconds.
    """
    while True:
        try:
            failure = told.get(timeout=MAX_WAIT if timeout is None else timeout)
        except queue.Empty:
            if timeout is None:
                continue
            raise
        if failure is not None:
            raise failure
        return
