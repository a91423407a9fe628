"""Permits to use one of an asyncio client's connections, and what it means that all of them are busy."""

from __future__ import annotations

import asyncio
from typing import Final

from shardq.ops.queue.steps import Unanswered

MIN_TRY: Final = 0.1
"""Seconds that each try has at least. With less, a healthy server might not be able to answer in time."""
MAX_WAIT: Final = 30 * 86_400.0
"""The longest wait for a permit, in seconds. Locks and event loops cannot wait much longer."""


class AllBusy(Unanswered):
    """All of a client's connections were busy until the caller's time was up. It says nothing about the server."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(
            f"all {count:,} connections of this client were busy for {seconds:.3g} s: raise max_connections, or the "
            "timeout",
            sent=False,
        )


class AsyncPermits:
    """*count* permits for coroutines, which get them in the order in which they came."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._semaphore = asyncio.Semaphore(count)  # it is fair, and handles cancelled waiters

    async def at_once(self) -> bool:
        """Take a permit if one is free. Return whether one was."""
        return not self._semaphore.locked() and await self._semaphore.acquire()

    async def take(self, seconds: float) -> None:
        """Wait up to *seconds* for a permit, and take it. AllBusy if none came. Give it back with `give`."""
        try:
            async with asyncio.timeout(min(seconds, MAX_WAIT)):
                await self._semaphore.acquire()
        except TimeoutError:
            raise AllBusy(self.count, seconds) from None

    def __enter__(self) -> None:
        """Do nothing: the permit was taken before, and `__exit__` gives it back."""

    def __exit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        """Pass the permit to the coroutine that has waited longest. If none waits, the permit is free."""
        self._semaphore.release()
