"""The timers that are compared: shardq's wheel, and what one would use instead.

The work is a request with a timeout: `start(delay)` makes one, whose `cancel()` says that it was answered; if nobody
does, its time runs out and `timeouts` is counted up. Each timer does that as its own users would. `run_due()` runs what
is due. `monotonic` is the clock.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import threading
from collections.abc import Callable
from typing import Any, Protocol

from shardq.timing import Entry, Timer

Monotonic = Callable[[], float]


class Request(Protocol):
    """What waits for an answer."""

    def cancel(self) -> object: ...


class Nothing:
    """A timer that does nothing: the cost of the benchmark itself, which is subtracted from the others."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts = 0

    def start(self, delay: float) -> Request:
        return self

    def cancel(self) -> None:
        pass

    def run_due(self) -> None:
        pass

    def close(self) -> None:
        pass


class GivenClock:
    """A clock for shardq's timers."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.monotonic = monotonic

    def wall(self) -> float:
        return 0.0


class WheelRequest(Entry):
    """A request that is an entry of the timer."""

    __slots__ = ("owner",)

    def __init__(self, owner: Wheel) -> None:
        self.bucket = None
        self.owner = owner

    def fire(self) -> None:
        self.owner.timeouts += 1

    cancel = Entry.leave


class Wheel(Timer):
    """The timer of shardq."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts = 0
        super().__init__(clock=GivenClock(monotonic))

    def _wake(self) -> None:
        pass

    def start(self, delay: float) -> Request:
        request = WheelRequest(self)
        self.insert(request, delay)
        return request


class HeapRequest:
    """A request that is marked when it is answered, and dropped when it comes to the top of the heap."""

    __slots__ = ("answered", "owner")

    def __init__(self, owner: Heap) -> None:
        self.answered = False
        self.owner = owner

    def cancel(self) -> None:
        self.answered = True

    def expire(self) -> None:
        self.owner.timeouts += 1


class Heap:
    """heapq with lazy deletion, and a lock."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts, self.monotonic = 0, monotonic
        self.heap: list[tuple[float, int, HeapRequest]] = []
        self.lock = threading.Lock()
        self.number = 0

    def start(self, delay: float) -> Request:
        request = HeapRequest(self)
        when = self.monotonic() + delay
        with self.lock:
            self.number = number = self.number + 1
            heapq.heappush(self.heap, (when, number, request))
        return request

    def run_due(self) -> None:
        now = self.monotonic()
        while True:
            with self.lock:
                if not self.heap or self.heap[0][0] > now:
                    return
                request = heapq.heappop(self.heap)[2]
            if not request.answered:
                request.expire()

    def close(self) -> None:
        self.heap.clear()


class LoopRequest:
    """A request with a handle of the loop."""

    __slots__ = ("handle", "owner")

    handle: asyncio.TimerHandle | None

    def __init__(self, owner: Asyncio) -> None:
        self.owner = owner

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def expire(self) -> None:
        self.handle = None  # else the two refer to each other, which only the garbage collector ends
        self.owner.timeouts += 1


class Asyncio:
    """asyncio's own timers, in a loop that is stepped by hand and asks for no files."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts = 0
        loop: Any = asyncio.SelectorEventLoop(_NoFiles())
        self.loop = loop
        loop.time = monotonic
        self.run_due = loop._run_once  # the public way, run_forever and stop, costs 10 us more each time

    def start(self, delay: float) -> Request:
        request = LoopRequest(self)
        request.handle = self.loop.call_later(delay, request.expire)
        return request

    def close(self) -> None:
        self.loop.close()


class _NoFiles(selectors.SelectSelector):
    """A selector that never asks the system."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


ASYNCIO, HEAP, WHEEL = "asyncio.call_later", "heapq + Lock", "shardq"
NOTHING = "(the driver)"

CONTENDERS: dict[str, Callable[[Monotonic], Any]] = {
    NOTHING: Nothing,
    WHEEL: Wheel,
    HEAP: Heap,
    ASYNCIO: Asyncio,
}
