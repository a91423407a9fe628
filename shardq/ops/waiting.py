"""The readers of one client that wait on one queue: what they want, and which of them gets what. Sans-IO.

They share one read, which is out on one blocking connection for all of them (`shardq.ops.pump`). The purgatory decides
how each wait ends, exactly once: with rows, with none when its time is up, or with word to read for itself.

Two times are told apart here and in all that reads on behalf of waiters, both of the local clock: `until`, when a
caller gives up, and `wake_at`, when there is a reason to read again. `block` is a time span: the seconds of a wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol, TypeAlias

from shardq.clock import Clock
from shardq.model import Received
from shardq.timing import Operation, Purgatory

Hook: TypeAlias = Callable[[], None]
"""What the driver has to do when it is called from here."""

MAX_SHARED: Final = 100
"""So many messages at most are asked for on behalf of several waiters."""

MAX_PER_CALL: Final = 200
"""So many at most are asked for in one call: no script is to take longer than a few ms."""

MAX_TAKEN_BACK: Final = 128
"""So many ended leases, and so many due messages, a read takes back at most (lua/read.lua)."""

NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class Request:
    """What a reader asks for: at most `count` messages, leases of `visibility` seconds, a stream to prefer."""

    count: int
    visibility: float
    prefer: int | None

    def like(self, other: Request) -> bool:
        """Whether one read can serve both."""
        return self.visibility == other.visibility and self.prefer == other.prefer


@dataclass(slots=True)
class Outstanding:
    """A read that has no answer yet: what a cancelled reader must give back.

    Its leases last *visibility* ms and end at *since* or later, in ms of the server's clock. `rows` came before it, of
    the same read.
    """

    holder: str = ""
    since: int = 0
    visibility: int = 0
    rows: list[Received] = field(default_factory=list)


class Waiter(Operation):
    """One blocked read, which gives up at `until`. Its own read at `read_at` found nothing.

    Once `done`, `rows` is what it was given of the read `outstanding`; None means that it shall read for itself, and
    first give back what a lost `outstanding` was granted. `failure` is an error that another read would meet again.
    `wake` is the driver's: how to wake the thread or task that waits.
    """

    __slots__ = ("done", "failure", "outstanding", "read_at", "request", "rows", "until", "waiting", "wake", "wake_at")

    def __init__(self, waiting: Waiting, request: Request, *, until: float, read_at: float, wake_at: float) -> None:
        super().__init__()
        self.waiting = waiting
        self.request = request
        self.until = until
        self.read_at = read_at
        self.wake_at = wake_at
        self.done = False
        self.rows: list[Received] | None = None
        self.outstanding: Outstanding | None = None
        self.failure: Exception | None = None
        self.wake: Hook = do_nothing

    def settle(
        self, rows: list[Received] | None, *, outstanding: Outstanding | None = None, failure: Exception | None = None
    ) -> bool:
        """End the wait; whether this call did it."""
        if not self.cancel():
            return False
        self.rows, self.outstanding, self.failure = rows, outstanding, failure
        self.done = True
        self.wake()
        return True

    def fire(self) -> None:
        """The timer's call: the time is up."""
        if not self.waiting.expire(self):
            self.waiting.end_wait()


def do_nothing() -> None:
    """Nobody waits, so nobody is to be woken."""


class Pump(Protocol):
    """What a driver runs to read on behalf of all who wait on one queue."""

    def cancel(self) -> object:
        """End it, and what it has sent: nobody is left whom it could serve."""


class Waiting:
    """The waiters of one queue, in the order of their arrival.

    The driver's are `pump`, which reads on their behalf, and `rouse`, which ends the wait that the pump has sent.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pump: Pump | None = None
        self.end_wait: Hook = do_nothing
        self.found_at = -NEVER  # local time at which a read on behalf of all last found something
        self.overdue_at = NEVER  # local time after which the answer to what the pump has sent is late
        self._leader: Waiter | None = None
        self._purgatory: Purgatory | None = None
        self._lock = Lock()

    def join(self, waiter: Waiter, purgatory: Purgatory, timeout: float | None) -> None:
        """Let *waiter* wait, for *timeout* seconds if the purgatory's timer is to expire it."""
        self._purgatory = purgatory
        purgatory.watch(waiter, (self,), timeout)

    def waiters(self) -> tuple[Waiter, ...]:
        """Who waits, the longest waiting first."""
        return self._purgatory.watched_under(self) if self._purgatory else ()  # type: ignore[return-value]

    def lead(self, waiter: Waiter) -> bool:
        """Whether *waiter* may read for all now: one at a time may."""
        with self._lock:
            if self._leader is None:
                self._leader = waiter
            return self._leader is waiter

    def led_by(self, waiter: Waiter) -> bool:
        """Whether *waiter* reads for all."""
        return self._leader is waiter

    def resign(self, waiter: Waiter) -> None:
        """*waiter* leaves, and somebody else must lead; where nobody is left, the pump ends."""
        with self._lock:
            if self._leader is waiter:
                self._leader = None
            if self._leader is not None:
                return
            if left := self.waiters():
                left[0].wake()
                return
            orphan, self.pump = self.pump, None
        if orphan is not None:
            orphan.cancel()

    def stop(self) -> None:
        """End the pump."""
        pump, self.pump = self.pump, None
        if pump is not None:
            pump.cancel()

    def expire(self, waiter: Waiter) -> bool:
        """End a wait whose time is up; False for the last waiter, since the answer to come is its last read.

        What comes just then goes to the others. While no answers come, *waiter* must find out for itself.
        """
        with self._lock:
            if len(self.waiters()) < 2:
                return waiter.done
            overdue = self.clock.monotonic() > self.overdue_at
            return waiter.settle(None if overdue else []) or waiter.done

    def expire_all(self, now: float) -> None:
        """A read just found nothing: it was the last one of those whose time is up."""
        for waiter in self.waiters():
            if waiter.until <= now:
                waiter.settle([])

    def request(self) -> Request | None:
        """What to ask for: what the first waiter wants, for all that are like it; None when nobody waits."""
        waiters = self.waiters()
        if not waiters:
            return None
        first, count = waiters[0].request, 0
        for waiter in waiters:
            if waiter.request.like(first):
                count += waiter.request.count
                if count >= MAX_SHARED:
                    break
        return Request(min(count, max(MAX_SHARED, first.count), MAX_PER_CALL), first.visibility, first.prefer)

    def deliver(self, request: Request, rows: list[Received], outstanding: Outstanding) -> list[Received]:
        """Give *rows* to those who want such, in order of arrival; what nobody was left to take."""
        for waiter in self.waiters():
            if not rows:
                break
            count = waiter.request.count
            if waiter.request.like(request) and waiter.settle(rows[:count], outstanding=outstanding):
                rows = rows[count:]
        return rows

    def release(self, lost: Outstanding | None = None, failure: Exception | None = None) -> bool:
        """Let each read for itself; the first gives back what *lost* was granted. Whether somebody will."""
        ended = False
        for waiter in self.waiters():
            ended = waiter.settle(None, outstanding=None if ended else lost, failure=failure) or ended
        return ended
