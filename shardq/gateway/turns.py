"""Turns between tokens: which ones wait for work of the gateway, and in which order they go.

The order is that of start-time fair queueing (Goyal, Vin & Cheng, SIGCOMM 1996). In virtual time, a token's request
begins when its earlier one ends, but not before the present, which is the beginning of the one that was let go last.
The earliest beginning goes first. So a token that asks for much waits behind itself, and one that asks for little goes
next, however many connections either has.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

STEP_MESSAGES: Final = 4.0
"""Small messages that are worked off in one step of the loop while others wait: about half a millisecond."""
BYTES_OF_SMALL_MESSAGE: Final = 10_000
"""As much work as one small message makes."""


def cost_of(messages: float, size: int) -> float:
    """Return what the work on *messages* of *size* bytes in all costs. One small message costs 1."""
    return messages + size / BYTES_OF_SMALL_MESSAGE


class TurnWaiter:
    """One who waits for work of *cost* and *size*, which begins at *begin* in virtual time."""

    __slots__ = ("begin", "cost", "future", "size")

    def __init__(self, begin: float, cost: float, size: int) -> None:
        self.begin, self.cost, self.size = begin, cost, size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class WaitingLine:
    """Those who wait, by the names of their tokens."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[TurnWaiter]] = {}
        self._ends: dict[str, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        """Return whether somebody waits."""
        return bool(self._waiting)

    def charge(self, name: str, cost: float) -> float:
        """Let *name* pay *cost*. Return when, in virtual time, the work that it pays for begins."""
        begin = max(self._now, self._ends.get(name, 0.0))
        self._ends[name] = begin + cost
        return begin

    def join(self, name: str, cost: float, size: int = 0) -> TurnWaiter:
        """Let *name* wait for its turn, in which the future of the waiter ends."""
        waiter = TurnWaiter(self.charge(name, cost), cost, size)
        self._waiting.setdefault(name, deque()).append(waiter)
        return waiter

    def leave(self, name: str, waiter: TurnWaiter) -> bool:
        """Let *waiter* wait no longer. Return False if it was let go before."""
        if waiter not in self._waiting.get(name, ()):
            return False
        self._waiting[name].remove(waiter)
        self._tidy(name)
        return True

    def first(self, may: Callable[[str, int], bool]) -> str | None:
        """Return the next name among those that *may* go with the request of their first one; None if none may."""
        can = [(queue[0].begin, name) for name, queue in self._waiting.items() if may(name, queue[0].size)]
        return min(can)[1] if can else None

    def let_go(self, name: str) -> TurnWaiter:
        """Let the first one of *name* go, and return it."""
        waiter = self._waiting[name].popleft()
        self._tidy(name)
        self._now = max(self._now, waiter.begin)
        if not waiter.future.done():
            waiter.future.set_result(None)
        return waiter

    def rest(self) -> None:
        """Forget what was paid, since nobody waits and nothing is under way."""
        self._now = 0.0
        self._ends.clear()

    def _tidy(self, name: str) -> None:
        if not self._waiting[name]:
            del self._waiting[name]


class GatewayTurns:
    """Turns at the one thread of the loop: in each of its steps a few requests are worked off, and no more.

    Between two steps the loop looks at its sockets, so a request that has just come waits for one step, not for all
    that came before it.
    """

    def __init__(self) -> None:
        self._line = WaitingLine()
        self._left, self._stepping = STEP_MESSAGES, False

    def take(self, cost: float) -> bool:
        """Take a turn for work of *cost* at once. Return False if one must `wait` for it."""
        if self._left <= 0 or self._line:
            return False
        self._left -= cost
        self._go_on()
        return True

    async def wait(self, name: str, cost: float) -> None:
        """Wait for the turn of the token *name*."""
        self._go_on()
        waiter = self._line.join(name, cost)
        try:
            await waiter.future
        finally:
            self._line.leave(name, waiter)

    def _go_on(self) -> None:
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._stepping, self._left = False, STEP_MESSAGES
        if not self._line:
            self._line.rest()
            return
        while self._left > 0 and (name := self._line.first(_all)) is not None:
            self._left -= self._line.let_go(name).cost
        self._go_on()


class TurnPlaces:
    """Places for work under way: *most* bytes in all, that go in turns between tokens.

    Small work counts as an eighth of them, so there are eight places; work that is larger than all of them goes alone.
    One token gets two of them, so that the work of another one begins at once, and the loop is soon free for it.
    """

    def __init__(self, most: int) -> None:
        self._most, self._line = most, WaitingLine()
        self._used: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, name: str, cost: float, size: int = 0) -> AsyncIterator[None]:
        """Wait for a place for work of *size* bytes that costs *cost*, and hold it."""
        size = max(size, self._most // 8)
        waiter = self._line.join(name, cost, size)
        self._pass_on()
        try:
            await waiter.future
            yield
        finally:
            if not self._line.leave(name, waiter):
                self._free(name, size)
            self._pass_on()

    def _pass_on(self) -> None:
        while (name := self._line.first(self._may)) is not None:
            self._used[name] += self._line.let_go(name).size
        if not (self._used or self._line):
            self._line.rest()

    def _free(self, name: str, size: int) -> None:
        self._used[name] -= size
        if not self._used[name]:
            del self._used[name]

    def _may(self, name: str, size: int) -> bool:
        if not self._used:
            return True
        is_within_share = not self._used[name] or self._used[name] + size <= self._most // 4
        return is_within_share and self._used.total() + size <= self._most


def _all(_name: str, _size: int) -> bool:
    return True
