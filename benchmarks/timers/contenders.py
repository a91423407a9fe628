"""The timers that are compared: shardq's wheels of two sizes, and what one would use instead.

The work is a request with a timeout: `start(delay)` makes one, whose `cancel()` says that it was answered; if nobody
does, its time runs out and `timeouts` is counted up. Each timer does that as its own users would. `run_due()` runs what
is due and says in how many seconds to look again; `monotonic` is the clock; `wake` is called for an earlier deadline.
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


class Contender(Protocol):
    """A timer that its caller moves by `run_due`."""

    timeouts: int
    wake: Callable[[], object]

    def start(self, delay: float) -> Request: ...

    def run_due(self) -> float | None: ...

    def close(self) -> object: ...


def nobody() -> None:
    """Nobody sleeps."""


class Nothing:
    """A timer that does nothing: the cost of the benchmark itself, which is subtracted from the others."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts, self.wake = 0, nobody

    def start(self, delay: float) -> Request:
        return self

    def cancel(self) -> None:
        pass

    def run_due(self) -> float | None:
        return None

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

    def __init__(self, monotonic: Monotonic, size: int) -> None:
        self.timeouts, self.wake = 0, nobody
        super().__init__(clock=GivenClock(monotonic), wheel_size=size)

    def _wake(self) -> None:
        self.wake()

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
        self.timeouts, self.wake, self.monotonic = 0, nobody, monotonic
        self.heap: list[tuple[float, int, HeapRequest]] = []
        self.lock = threading.Lock()
        self.number = 0

    def start(self, delay: float) -> Request:
        request = HeapRequest(self)
        when = self.monotonic() + delay
        with self.lock:
            self.number = number = self.number + 1
            heapq.heappush(self.heap, (when, number, request))
            first = self.heap[0][1] == number
        if first:
            self.wake()
        return request

    def run_due(self) -> float | None:
        now = self.monotonic()
        while True:
            with self.lock:
                if not self.heap:
                    return None
                if self.heap[0][0] > now:
                    return self.heap[0][0] - now
                request = heapq.heappop(self.heap)[2]
            if not request.answered:
                request.expire()

    def close(self) -> None:
        self.heap.clear()


class FlatRequest:
    """A request that knows the dict of its tick."""

    __slots__ = ("owner", "tick")

    tick: dict[FlatRequest, None]

    def __init__(self, owner: Flat) -> None:
        self.owner = owner

    def cancel(self) -> None:
        self.tick.pop(self, None)

    def expire(self) -> None:
        self.owner.timeouts += 1


class Flat:
    """A dict of ticks and a heap of those in use, without wheels. No lock; ticks of 1 ms."""

    def __init__(self, monotonic: Monotonic) -> None:
        self.timeouts, self.wake, self.monotonic = 0, nobody, monotonic
        self.ticks: dict[int, dict[FlatRequest, None]] = {}
        self.heap: list[int] = []

    def start(self, delay: float) -> Request:
        request = FlatRequest(self)
        due = int((self.monotonic() + delay) * 1000) + 1
        tick = self.ticks.get(due)
        if tick is None:
            tick = self.ticks[due] = {}
            heapq.heappush(self.heap, due)
            if self.heap[0] == due:
                self.wake()
        request.tick = tick
        tick[request] = None
        return request

    def run_due(self) -> float | None:
        now = self.monotonic()
        while self.heap and self.heap[0] <= now * 1000:
            tick = self.ticks.pop(heapq.heappop(self.heap))
            for request in list(tick):
                tick.pop(request, None)
                request.expire()
        return self.heap[0] / 1000 - now if self.heap else None

    def close(self) -> None:
        self.ticks.clear()


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
    """asyncio's own timers; a loop that is stepped by hand and asks for no files, or the one that is given."""

    def __init__(self, monotonic: Monotonic, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.timeouts, self.wake = 0, nobody
        self.loop: Any = loop
        if loop is None:
            self.loop = asyncio.SelectorEventLoop(_NoFiles())
            self.loop.time = monotonic
        self.run_due = self.loop._run_once  # the public way, run_forever and stop, costs 10 us more each time

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


ASYNCIO, HEAP, FLAT = "asyncio.call_later", "heapq + Lock", "dict of ticks"
WHEEL, WHEEL_256 = "shardq, wheel 20", "shardq, wheel 256"
NOTHING = "(the driver)"

CONTENDERS: dict[str, Callable[[Monotonic], Any]] = {
    NOTHING: Nothing,
    WHEEL: lambda monotonic: Wheel(monotonic, 20),
    WHEEL_256: lambda monotonic: Wheel(monotonic, 256),
    HEAP: Heap,
    FLAT: Flat,
    ASYNCIO: Asyncio,
}
