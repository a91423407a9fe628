"""Who may use one of a client's connections: first come, first served, for as long as the caller has time."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import Final

from shardq.ops.steps import Unanswered

MIN_TRY: Final = 0.1
"""Seconds that a try has at least: with less, a call would be given up that a healthy server was about to answer."""
MAX_WAIT: Final = 30 * 86_400.0
"""Seconds that one waits for a permit at most: what locks and loops can count."""


class AllBusy(Unanswered):
    """All of a client's connections were busy until the caller's time was up: says nothing of the server."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(
            f"all {count:,} connections of this client were busy for {seconds:.3g} s: raise max_connections, or the "
            "timeout",
            sent=False,
        )


class Permits:
    """*count* permits for threads, which wait for one in the order in which they came."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._lock = Lock()
        self._waiting: deque[Lock] = deque()

    def at_once(self) -> bool:
        """Take a permit if one is free; whether it was."""
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            return True

    def take(self, seconds: float) -> None:
        """Take a permit; Crowded if there is none for *seconds*. Give it back with `give`."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = Lock()
            mine.acquire()
            self._waiting.append(mine)
        taken = False
        try:
            taken = mine.acquire(timeout=min(seconds, MAX_WAIT))
        finally:
            if not taken:
                self._leave(mine)
        if not taken:
            raise AllBusy(self.count, seconds)

    def __enter__(self) -> None:
        """The permit was taken; it is given back at the end."""

    def __exit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        """Let the thread that waits longest have the permit; without one it is free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def _leave(self, mine: Lock) -> None:
        """Wait no more. If the permit came at that very moment, somebody else gets it."""
        with self._lock:
            try:
                self._waiting.remove(mine)
                return
            except ValueError:
                pass
        self.give()


class AsyncPermits:
    """The twin of `Permits` for coroutines."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._semaphore = asyncio.Semaphore(count)  # first come, first served; knows what to do when one is cancelled

    async def at_once(self) -> bool:
        """Take a permit if one is free; whether it was."""
        return not self._semaphore.locked() and await self._semaphore.acquire()

    async def take(self, seconds: float) -> None:
        """Take a permit; Crowded if there is none for *seconds*. Give it back with `give`."""
        try:
            async with asyncio.timeout(min(seconds, MAX_WAIT)):
                await self._semaphore.acquire()
        except TimeoutError:
            raise AllBusy(self.count, seconds) from None

    def __enter__(self) -> None:
        """The permit was taken; it is given back at the end."""

    def __exit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        """Let the coroutine that waits longest have the permit; without one it is free."""
        self._semaphore.release()
