"""The event loop of a `Worker`, for what of its functions is async, and a client there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from shardq.client import AsyncClient, AsyncQueue, Client, Queue
from shardq.worker.ending import Pool
from shardq.worker.signals import MAX_WAIT

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the last tasks and generators have to end."""


class OwnLoop:
    """An event loop in a thread, a daemon, with a client beside *client*.

    It is no `asyncio.run`, which would wait at its end for whatever runs in threads.
    """

    def __init__(self, client: Client) -> None:
        self._client = AsyncClient.beside(client)
        self.loop = asyncio.new_event_loop()
        self.pool = Pool()
        self.loop.set_default_executor(self.pool)
        self._thread = threading.Thread(target=self.loop.run_forever, name="shardq-worker-loop", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def within(self, opened: AbstractAsyncContextManager[None]) -> Iterator[None]:
        """Enter *opened* in a task of the loop, in a copy of this context, and leave it in the same task."""
        told: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        end = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def live() -> None:
            failure: BaseException | None = None
            try:
                async with opened:
                    told.put(None)
                    await end.wait()
            except BaseException as error:  # noqa: BLE001 (run raises it)
                failure = error
            told.put(failure)

        context = contextvars.copy_context()
        self.loop.call_soon_threadsafe(lambda: tasks.append(self.loop.create_task(live(), context=context)))
        _raise(told)
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(end.set)
            _raise(told)

    def queue(self, queue: Queue) -> AsyncQueue:
        """Return this *queue* for the loop."""
        return AsyncQueue(self._client, self._client.state_beside(queue.state))

    def close(self) -> None:
        """Cancel what is left, and end the loop; one that is held up goes on, and nobody waits for it."""
        for function in (self._client.aclose, _end_all):
            with contextlib.suppress(Exception):  # the loop may be held up
                asyncio.run_coroutine_threadsafe(function(), self.loop).result(CLOSE_TIMEOUT)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            self.pool.shutdown(wait=False)
            self.loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT / 2)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _raise(told: queue.SimpleQueue[BaseException | None]) -> None:
    """Wait for what is told, and raise it if it is an error. A main thread must wake for signals meanwhile."""
    while True:
        try:
            failure = told.get(timeout=MAX_WAIT)
        except queue.Empty:
            continue
        if failure is not None:
            raise failure
        return
