"""Asks a poller, which blocks, from an event loop: in a few threads, and one question at a time of each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from shardq.exporter.policy import Numbers, numbers_of
from shardq.exporter.poller import Poller
from shardq.model.stats import QueueStats

T = TypeVar("T")
THREADS: Final = 16
"""Threads that ask; each waits for Redis."""


class Asking:
    """Asks *poller*. Errors are those of the poller."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shardq-asking")
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    async def stats(self, queue: str, *, early: bool = False) -> QueueStats:
        """Return the stats of a queue; *early*, new ones, since something has just been written."""
        return await self._once(("stats", queue, early), lambda: self._poller.stats(queue, early=early))

    async def numbers(self, queue: str, *, with_outlook: bool) -> Numbers:
        """Return the numbers of a queue; without the outlook, those that its stats have."""
        if not with_outlook:
            return numbers_of(await self.stats(queue), None)
        return await self._once(("numbers", queue), lambda: self._poller.numbers(queue))

    async def is_ready(self) -> bool:
        """Say whether Redis answered in the last seconds."""
        return await self._once("ready", self._poller.is_ready)

    def close(self) -> None:
        """Ask no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _once(self, what: Hashable, ask: Callable[[], T]) -> T:
        """Return the answer. Those who ask the same meanwhile get the same one, even if any of them leaves."""
        asked: asyncio.Future[T] | None = self._asked.get(what)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, ask)
            self._asked[what] = asked
            asked.add_done_callback(lambda done: self._done(what, done))
        return await asyncio.shield(asked)

    def _done(self, what: Hashable, asked: asyncio.Future[Any]) -> None:
        self._asked.pop(what, None)
        if not asked.cancelled():
            asked.exception()  # those who asked may all be gone
