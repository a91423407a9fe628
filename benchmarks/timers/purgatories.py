"""The purgatory beside Kafka's two rules for purging watch lists, on a virtual clock: CPU time per request."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from benchmarks.timers.contenders import Asyncio, GivenClock, Monotonic
from benchmarks.timers.replay import Clock
from benchmarks.timers.workload import TIMEOUT, Schedule
from shardq.timing import Entry, Operation, Purgatory, Timer

PURGE_INTERVAL = 1000  # Kafka's


class Shardq:
    """The purgatory of this package."""

    def __init__(self, monotonic: Monotonic, size: int = 20) -> None:
        self.timer = Timer(clock=GivenClock(monotonic), wheel_size=size)
        self.purgatory = Purgatory(self.timer)
        self.step = self.timer.run_due
        self.close = self.timer.close

    def watch(self, keys: tuple[int, ...]) -> Operation:
        operation = Operation()
        self.purgatory.watch(operation, keys, TIMEOUT)
        return operation

    def kept(self) -> int:
        """Places in watch lists that completed operations take."""
        lists = self.purgatory._watchers.values()
        return sum(not each.pending for operations in lists for each in operations)


class Waiting:
    """An operation of the rules below. Both are thread-safe in the way of Kafka: a lock per operation, a claim."""

    __slots__ = ("claim", "lock", "owner", "request")

    request: Any

    def __init__(self, owner: PresentRule | OldRule) -> None:
        self.owner = owner
        self.lock = Lock()
        self.claim = [True]  # taking it out is atomic

    @property
    def done(self) -> bool:
        return not self.claim

    def ready(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass

    def complete(self) -> bool:
        try:
            self.claim.pop()
        except IndexError:
            return False
        self.owner.completed(self)
        self.on_complete()
        return True


def watch(operation: Waiting, watchers: dict[int, list[Waiting]], keys: tuple[int, ...]) -> bool:
    """Try, watch, try again."""
    with operation.lock:
        if operation.ready():
            return operation.complete()
        for key in keys:
            if operation.claim:
                watchers.setdefault(key, []).append(operation)
        return operation.ready() and operation.complete()


class PresentRule:
    """Kafka's rule since 0.9: leave the timer at once, purge the lists when 1,000 of an estimate are complete."""

    def __init__(self, timer: Any) -> None:
        self.timer = timer
        self.close = timer.close
        self.watchers: dict[int, list[Waiting]] = {}
        self.lock = Lock()
        self.delayed = 0
        self.estimate = 0

    def watch(self, keys: tuple[int, ...]) -> Waiting:
        operation = Waiting(self)
        if not watch(operation, self.watchers, keys):
            with self.lock:
                self.estimate += 1
                self.delayed += 1
            operation.request = self.timer.start(TIMEOUT, operation)
        return operation

    def completed(self, operation: Waiting) -> None:
        operation.request.cancel()
        with self.lock:
            self.delayed -= 1

    def step(self) -> None:
        self.timer.run_due()
        if self.estimate - self.delayed > PURGE_INTERVAL:
            with self.lock:
                self.estimate = self.delayed
            for key, operations in self.watchers.items():
                self.watchers[key] = [each for each in operations if each.claim]

    def kept(self) -> int:
        return sum(each.done for operations in self.watchers.values() for each in operations)


class OldRule:
    """Kafka's rule until 0.8: completed ones stay in the timer and in the lists; all is scanned when they hold 1,000.

    As there, the look at the sizes comes after each request that timed out. `patient`: once per step, which spares it
    most of its work.
    """

    def __init__(self, monotonic: Monotonic, *, patient: bool = False) -> None:
        self.monotonic = monotonic
        self.patient = patient
        self.heap: list[tuple[float, int, Waiting]] = []
        self.watchers: dict[int, list[Waiting]] = {}
        self.lock = Lock()
        self.number = 0

    def watch(self, keys: tuple[int, ...]) -> Waiting:
        operation = Waiting(self)
        if not watch(operation, self.watchers, keys):
            with self.lock:
                self.number += 1
                heapq.heappush(self.heap, (self.monotonic() + TIMEOUT, self.number, operation))
        return operation

    def completed(self, operation: Waiting) -> None:
        pass

    def step(self) -> None:
        now = self.monotonic()
        while self.heap and self.heap[0][0] <= now:
            with self.lock:
                operation = heapq.heappop(self.heap)[2]
            if operation.complete() and not self.patient:
                self.purge()
        self.purge()

    def purge(self) -> None:
        if sum(map(len, self.watchers.values())) >= PURGE_INTERVAL:
            for key, operations in self.watchers.items():
                self.watchers[key] = [each for each in operations if each.claim]
        if len(self.heap) >= PURGE_INTERVAL:
            with self.lock:
                self.heap = [each for each in self.heap if each[2].claim]
                heapq.heapify(self.heap)

    def kept(self) -> int:
        return sum(each.done for operations in self.watchers.values() for each in operations)

    def close(self) -> None:
        self.heap.clear()


class TimedEntry(Entry):
    """An entry that completes an operation."""

    __slots__ = ("operation",)

    def __init__(self, operation: Waiting) -> None:
        self.bucket = None
        self.operation = operation

    def fire(self) -> None:
        self.operation.complete()

    cancel = Entry.leave


class OnWheel(Timer):
    """The present rule's timer, ours."""

    def start(self, delay: float, operation: Waiting) -> TimedEntry:
        entry = TimedEntry(operation)
        self.insert(entry, delay)
        return entry


class OnLoop(Asyncio):
    """The present rule's timer, asyncio's."""

    def start(self, delay: float, operation: Waiting) -> Any:  # type: ignore[override]
        return self.loop.call_later(delay, operation.complete)


OURS, OURS_256 = "shardq, wheel 20", "shardq, wheel 256"
PRESENT, PRESENT_WHEEL = "Kafka's present rule, asyncio", "Kafka's present rule, shardq's wheel 20"
OLD, OLD_PATIENT = "Kafka 0.8's rule, heapq + Lock", "the same, purging once per ms"
PURGATORIES: dict[str, Callable[[Monotonic], Any]] = {
    OURS: Shardq,
    OURS_256: lambda monotonic: Shardq(monotonic, 256),
    PRESENT_WHEEL: lambda monotonic: PresentRule(OnWheel(clock=GivenClock(monotonic), wheel_size=20)),
    PRESENT: lambda monotonic: PresentRule(OnLoop(monotonic)),
    OLD: OldRule,
    OLD_PATIENT: lambda monotonic: OldRule(monotonic, patient=True),
}


def run(contender: str, mode: str, requests: int, rate: float, keys: int) -> dict[str, float]:
    """CPU microseconds per request; the most completed operations that watch lists held after a step."""
    schedule, clock = Schedule(mode, requests, rate), Clock()
    purgatory, under = PURGATORIES[contender](clock.monotonic), tuple(range(keys))
    operations: list[Any] = [None] * requests
    first, spent, kept = 0, 0.0, 0
    for tick, arrivals in enumerate(schedule.arrivals):
        clock.now = tick / 1000
        started = time.process_time()
        purgatory.step()
        for at in schedule.completed[tick]:
            operations[at].complete()
            operations[at] = None
        for at in schedule.timed_out[tick]:
            operations[at] = None
        for at in range(first, first + arrivals):
            operations[at] = purgatory.watch(under)
        first += arrivals
        spent += time.process_time() - started
        if tick % 50 == 0:
            kept = max(kept, purgatory.kept())
    purgatory.close()
    return {"us": spent / requests * 1e6, "kept": kept}


def measure(name: str, mode: str, requests: str, rate: str, keys: str) -> dict[str, float]:
    return run(name, mode, int(requests), float(rate), int(keys))
