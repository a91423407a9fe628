"""The waiters of one client on one queue: what they request, and which of them gets which messages. No I/O.

The waiters share one pending read on one blocking connection (`shardq.ops.read.pump`). The purgatory makes sure that
each wait ends exactly once: with rows, with none when its time is up, or with the order to make a read of its own.
The first of these ends it:

    Waiting.deliver       the pump's read brought messages              its rows
    Waiting.expire_all    the pump's read found none, after `until`     []
    Waiter.fire, by the timer at `until`:
        others wait on                                                  []
        the answer is overdue, so the connection may be dead            None: it reads by itself
        it is the last one                                              it waits on: the block is ended, and the read
                                                                        behind that is its final one
    Waiting.release       the pump failed, or the queue changed         None; the first one also gives back what the
                                                                        lost read was granted

There are two times of the local clock, here and in everything that reads on behalf of waiters: `until`, when a caller
gives up, and `wake_at`, when there is a reason to read again. `block` is a duration: the seconds of a wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import Final, Protocol, TypeAlias

import msgspec

from shardq.clock import Clock
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.read.lately import Lately
from shardq.timing import Operation, Purgatory

Hook: TypeAlias = Callable[[], None]
"""A function of the driver that is called from here."""

MAX_PER_CALL: Final = 100
"""Messages that one call requests at most, so that no script takes longer than a few ms."""

NO_TIME: Final = math.inf

FRESH_SECONDS: Final = 0.1
"""Seconds for which a read that took all there was stands for a look. For longer jobs a look costs little."""

LOOK_SECONDS: Final = 5.0
"""Seconds after which a reader looks by itself. Nobody watches for what time brings later (lua/notifications.lua)."""


class ReadRequest(msgspec.Struct, frozen=True):
    """A reader's request: at most `count` messages, leases of `visibility` seconds, a stream to prefer or None.

    In a bare read each body is the size of its payload, as text: the client that leases messages here may
    fetch them elsewhere. `due` says how much is due to those that wait for a turn, in eighths of a message, if the
    client counts that itself.
    """

    count: int
    visibility: float
    prefer: int | None
    is_bare: bool = False
    due: int | None = None

    def like(self, other: ReadRequest) -> bool:
        """Return whether one read can serve both requests."""
        alike = self.visibility == other.visibility and self.prefer == other.prefer
        return alike and self.is_bare == other.is_bare


class Outstanding(msgspec.Struct):
    """A read call that has no answer yet, so that a cancelled reader can give its leases back.

    Its leases last `visibility` ms and end at `since` or later, in ms of the server's clock. `holder` is '' once the
    answer has come. `rows` are those of earlier calls of the same read. `left` are the seconds for which a read would
    wait on that ended because its queue was given partitions: its caller waits at all of them.
    """

    holder: str = ""
    since: int = 0
    visibility: int = 0
    rows: list[Received] = msgspec.field(default_factory=list)
    left: float | None = None


class ReadWaiter(Operation):
    """One blocked read, which gives up at `until`. Its own read at `read_at` found nothing.

    It ends once, by what comes first: `deliver` with messages, `expire_all` or the timer without any, `release` with
    the order to read by itself. The thread or task that waits then sees `done`, and what it got.

    Once it is `done`, `rows` are its messages of the read `outstanding`, after which there may be `more`. None means
    that it must make a read of its own, and first give back the leases of `outstanding`, a read whose reply was lost.
    `failure` is an error that another read would get as well. The driver sets `wake`, which wakes the thread or task
    that waits.
    """

    __slots__ = (
        "done", "failure", "more", "outstanding", "read_at", "request", "rows", "until", "waiting", "wake", "wake_at",
    )  # fmt: skip

    def __init__(self, waiting: Waiting, request: ReadRequest, *, until: float, read_at: float, wake_at: float) -> None:
        super().__init__()
        self.waiting = waiting
        self.request = request
        self.until = until
        self.read_at = read_at
        self.wake_at = wake_at
        self.done = False
        self.rows: list[Received] | None = None
        self.more = False
        self.outstanding: Outstanding | None = None
        self.failure: Exception | None = None
        self.wake: Hook = do_nothing

    def finish(
        self,
        rows: list[Received] | None,
        *,
        outstanding: Outstanding | None = None,
        more: bool = False,
        failure: Exception | None = None,
    ) -> bool:
        """End the wait. Return whether it had not ended before."""
        if not self.cancel():
            return False
        # In this order: the thread that waits looks for `done` when it is woken, and then reads the rest without a
        # lock.
        self.rows, self.outstanding, self.more, self.failure = rows, outstanding, more, failure
        self.done = True
        self.wake()
        return True

    def fire(self) -> None:
        """The timer calls this when the time is up."""
        if not self.waiting.expire(self):
            self.waiting.end_wait()


def do_nothing() -> None:
    """The hook of a driver that has nothing to wake or to end."""


def give_out(rows: list[Received], takers: Iterable[tuple[int, Callable[[list[Received]], bool]]]) -> list[Received]:
    """Give *rows* out in the order of *takers*. Return the rows left over.

    A taker is how many rows it wants, and a function that takes them; it returns False if its reader has left.
    """
    for count, take in takers:
        if not rows:
            break
        if take(rows[:count]):
            rows = rows[count:]
    return rows


class Pump(Protocol):
    """The loop that a driver runs to read on behalf of all waiters of one queue."""

    def cancel(self) -> object:
        """End the pump and its pending read, because no waiter is left."""


class Waiting:
    """The waiters of one queue, in the order of their arrival.

    The driver sets `pump`, which reads on their behalf, and `end_wait`, which ends the blocking wait that the pump has
    sent.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pump: Pump | None = None
        self.end_wait: Hook = do_nothing
        self.found_at = -NO_TIME  # local time at which a read on behalf of all last found something
        self.overdue_at = NO_TIME  # local time after which the answer to what the pump has sent is late
        self.told_until = -NO_TIME  # local time until which writers notify: a read that found nothing has asked for it
        self.emptied_at = -NO_TIME  # local time at which a read took all that there was; none came after that
        self.left_at = -NO_TIME  # local time at which a read came back that may have left something
        self.lately = Lately()
        self._leader: ReadWaiter | None = None
        self._purgatory: Purgatory | None = None
        self._lock = Lock()

    def join(self, waiter: ReadWaiter, purgatory: Purgatory, timeout: float | None) -> None:
        """Add *waiter*. The purgatory's timer expires it after *timeout* seconds; None: it is not timed."""
        self._purgatory = purgatory
        purgatory.watch(waiter, (self,), timeout)

    def waiters(self) -> tuple[ReadWaiter, ...]:
        """Return the waiters, the one that has waited longest first."""
        return () if self._purgatory is None else self._purgatory.watched_under(self)  # type: ignore[return-value]

    def emptied(self, sent: float, now: float) -> None:
        """Note that a read that was sent at local time *sent* has taken all that there was."""
        # Not if another read may have come after it, and left something.
        if sent > self.left_at:
            self.emptied_at = now

    def left_some(self, now: float) -> None:
        """Note that a read that is over at local time *now* may have left something."""
        self.left_at, self.emptied_at = now, -NO_TIME

    def proven_for(self, now: float) -> float:
        """Return for how many seconds a reader may wait without a look; 0 if it must look.

        If all there was has just been taken, and writers have notified since then, whatever came has a notification.
        """
        if now - self.emptied_at >= FRESH_SECONDS:
            return 0.0
        return max(0.0, min(self.told_until, self.emptied_at + LOOK_SECONDS) - now)

    def lead(self, waiter: ReadWaiter) -> bool:
        """Let *waiter* lead if there is no leader. Return whether it leads: only the leader may run the pump."""
        with self._lock:
            if self._leader is None:
                self._leader = waiter
            return self._leader is waiter

    def led_by(self, waiter: ReadWaiter) -> bool:
        """Return whether *waiter* is the leader."""
        return self._leader is waiter

    def resign(self, waiter: ReadWaiter) -> None:
        """Remove *waiter* as the leader, and wake the next waiter, which will lead. Without waiters the pump ends."""
        with self._lock:
            if self._leader is waiter:
                self._leader = None
            if self._leader is not None:
                return
            if remaining := self.waiters():
                # The pump stays: the next leader continues with it and with the answer that is pending on its
                # connection.
                remaining[0].wake()
                return
            orphan, self.pump = self.pump, None
        if orphan is not None:
            orphan.cancel()

    def stop(self) -> None:
        """End the pump."""
        pump, self.pump = self.pump, None
        if pump is not None:
            pump.cancel()

    def expire(self, waiter: ReadWaiter) -> bool:
        """End a wait whose time is up. Return False if it continues.

        The last waiter continues to wait, because the answer that is outstanding is its final read. With other waiters,
        these get what that answer brings. If the answer is overdue, *waiter* must make a read of its own.
        """
        with self._lock:
            # Under the lock: if the time of two waiters is up at once, one stays for the answer.
            if len(self.waiters()) < 2:
                return waiter.done
            overdue = self.clock.monotonic() > self.overdue_at
            return waiter.finish(None if overdue else []) or waiter.done

    def expire_all(self, now: float) -> None:
        """End the waits whose time is up at *now*, after a read that found nothing."""
        for waiter in self.waiters():
            if waiter.until <= now:
                waiter.finish([])

    def request(self) -> ReadRequest | None:
        """Return the pump's request: that of the first waiter and all like it; None without waiters."""
        waiters = self.waiters()
        if not waiters:
            return None
        first, count = waiters[0].request, 0
        for waiter in waiters:
            if waiter.request.like(first):
                count += waiter.request.count
                if count >= MAX_PER_CALL:
                    break
        return ReadRequest(min(count, MAX_PER_CALL), first.visibility, first.prefer, first.is_bare)

    def deliver(
        self, request: ReadRequest, rows: list[Received], outstanding: Outstanding, *, more: bool
    ) -> list[Received]:
        """Give *rows* to the waiters with a request like *request*, in order of arrival. Return the rows left over.

        *more* tells them whether another read may find more.
        """
        takers = (
            (each.request.count, partial(each.finish, outstanding=outstanding, more=more))
            for each in self.waiters()
            if each.request.like(request)
        )
        return give_out(rows, takers)

    def release(self, lost: Outstanding | None = None, failure: Exception | None = None) -> bool:
        """Let each waiter make a read of its own; the first gives back the leases of *lost*. False without waiters."""
        ended = False
        for waiter in self.waiters():
            ended = waiter.finish(None, outstanding=None if ended else lost, failure=failure) or ended
        return ended


def waiting_of(state: QueueState) -> Waiting:
    """Return those who wait for messages of this queue."""
    waiting: Waiting | None = state.waiting.get("read")
    return waiting or state.waiting.setdefault("read", Waiting(state.clock))
