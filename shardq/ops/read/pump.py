"""The pump: it reads on behalf of all waiters of one queue, over one blocking connection.

It sends a blocking wait for a notification and, in the same pipeline, the read script (`Armed`). The server runs the
script the moment the wait ends, so the message arrives together with the wake-up. A read that finds nothing clears the
notifications and tells writers that a reader waits. Only then may the pump block: after a read that found something,
more messages may be there for which no notification comes, so the pump reads once more without blocking.

While others watch for what time brings, it only waits: it may be woken to watch, not to read.

    the last read                  what is sent next                 after that
    found something, or failed     the read alone                    quiet if it finds nothing
    found nothing (quiet)          a wait, and the read behind it    quiet if it finds nothing
    quiet, and others watch        a wait alone                      quiet only if it was woken to watch
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from shardq.ops.queue.outcome import ignore_failure
from shardq.ops.queue.retry import TRANSIENT
from shardq.ops.queue.server_time import ServerTime, earliest_grant
from shardq.ops.queue.state import OTHERS_WATCH, QueueState
from shardq.ops.queue.steps import MORE_KEYS, Armed, Op, Refused, Sleep, Unanswered
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.read.command import ALL_DECLARED, ReadCall, ReadReply, read_call, read_reply
from shardq.ops.read.give_back import give_back, recover
from shardq.ops.read.waiting import Outstanding, ReadRequest, waiting_of
from shardq.protocol.replies import entries_of

ARMED_DECLARED: Final = 256
"""An armed read cannot know which stream will be next. It declares those that it has seen lately, or all streams, if
there are few enough.
"""

LATENESS: Final = 0.5
"""Seconds after the end of its wait at which an answer is overdue. Redis ends a wait up to 100 ms late."""

RECENT_SECONDS: Final = 0.1
"""Seconds for which a reply tells well enough what time the server has: leases are taken to end that much too early."""

PAUSE: Final = 0.01
_MOMENT: Final = re.compile(rb"@(\d{1,15})")
_ENDED: Final = frozenset({"NOGROUP", "NOSCRIPT"}) | TRANSIENT


def pump(state: QueueState) -> Op[None]:
    """Read on behalf of all waiters until none is left.

    When a read of the pump fails, each waiter makes a read of its own, which knows how to try again.
    """
    outstanding = Outstanding()
    try:
        yield from _Pump(state, outstanding).run()
        return
    except Unanswered as lost:
        outstanding.holder = outstanding.holder if lost.sent else ""
        failure: Exception | None = None
    except Refused as refused:
        outstanding.holder, failure = "", None if refused.code in _ENDED else refused
    waiting = waiting_of(state)
    # Nothing is pending now, so no waiter need fear that its answer is late.
    waiting.overdue_at = math.inf
    yield Sleep(PAUSE)
    lost_read = outstanding if outstanding.holder else None
    if not waiting.release(lost_read, failure) and lost_read:
        yield from ignore_failure(recover(state, lost_read, state.until()))


class _Pump:
    """The pump of one queue.

    `quiet` is true if its last read found nothing: then a notification comes for every later message. At local time
    `wake_at` there is a reason to read again without a notification, such as a message that comes due.
    """

    def __init__(self, state: QueueState, outstanding: Outstanding) -> None:
        self.state, self.clock, self.waiting, self.outstanding = state, state.clock, waiting_of(state), outstanding
        waiters = self.waiting.waiters()
        # If one of them has looked since anything was last found, and found nothing, that proves it for all.
        self.quiet = any(waiter.read_at > self.waiting.found_at for waiter in waiters)
        self.wake_at = min((waiter.wake_at for waiter in waiters), default=math.inf)

    def run(self) -> Op[None]:
        """Make one read after the other, until there are no waiters."""
        while True:
            # Only a read that found nothing may end the waits whose time is up: else a message may be there for them.
            if self.quiet:
                self.waiting.expire_all(self.clock.monotonic())
            request = self.waiting.request()
            if request is None:
                return
            # Not before: the caller that has its messages, and leads, need not wait for it.
            yield from upkeep(self.state, self.clock.monotonic())
            found = yield from self._read(request)
            if found is None:
                continue
            if found.rows:
                yield from self._deliver(request, found)
            # The queue must be looked up, which may fail or take long: each waiter does that with its own deadline.
            if found.moved:
                self.waiting.release()
                return

    def _read(self, request: ReadRequest) -> Op[ReadReply | None]:
        # After a read that found something, more may be there without a notification: this one must not block.
        if not self.quiet:
            return (yield from self._plain(request))
        if self.state.watch == OTHERS_WATCH:
            yield from self._sleep(request)
            return None
        return (yield from self._armed(request))

    def _deliver(self, request: ReadRequest, found: ReadReply) -> Op[None]:
        self.waiting.found_at = self.clock.monotonic()
        outstanding = replace(self.outstanding)
        if unclaimed := self.waiting.deliver(request, found.rows, outstanding, more=found.more):
            yield from ignore_failure(give_back(self.state, unclaimed, self.state.until()))

    def _plain(self, request: ReadRequest) -> Op[ReadReply]:
        read = read_call(
            self.state, request, self._left(self._until()), self.outstanding, declare=ALL_DECLARED, pumped=True
        )
        self.waiting.overdue_at = read.sent + LATENESS
        reply = yield read.call
        return self._judge(read, reply, None)

    def _armed(self, request: ReadRequest) -> Op[ReadReply]:
        state, now, until = self.state, self.clock.monotonic(), self._until()
        block = max(0.001, min(self._left(until), self.wake_at - now))
        left = max(0.001, self._left(until - block))  # the wait may end early: then there is more
        likely = self.waiting.lately.likely(state.streams)
        read = read_call(
            state, request, left, self.outstanding, declare=ARMED_DECLARED, likely=likely, delay=block, pumped=True
        )
        self.waiting.overdue_at = read.sent + block + LATENESS
        key, block_ms, known = state.keys.notifications, math.ceil(block * 1000), state.server_time
        is_timed = known is None or read.sent - known.at > RECENT_SECONDS
        time_before, notified, reply = yield Armed(
            key, request.count, block_ms, read.call, self.wake_at, self.waiting, None, is_timed
        )
        if isinstance(notified, Refused):
            yield from _pause(notified)
        before = _time_of(time_before, read.sent, known)
        if isinstance(reply, Refused):
            found = yield from self._read_again(request, read.call.explain(reply))
        else:
            found = self._judge(read, reply, _granted(read.sent, before, reply, self.clock.monotonic()))
            if not found.moved:
                self.waiting.lately.note(reply[5][::2], missed=reply[0] == b"MISS")
        if self.quiet:
            # Only a read that found nothing is followed by a wait, for which the moment matters.
            self._heed(notified, before)
        return found

    def _read_again(self, request: ReadRequest, refused: Refused) -> Op[ReadReply]:
        """Read at once after an armed read was *refused*. Raise that if it was not for want of the script or of keys.

        A plain read brings both. Notifications are heeded after it.
        """
        if refused.code not in ("NOSCRIPT", MORE_KEYS):
            raise refused
        return (yield from self._plain(request))

    def _sleep(self, request: ReadRequest) -> Op[None]:
        """Wait for a notification while others watch for what time brings: then read, or watch from then on.

        No read is sent behind the wait: a client that is woken only to watch would read for nothing.
        """
        block, now = max(0.001, self._left(self._until())), self.clock.monotonic()
        self.waiting.overdue_at = now + block + LATENESS
        key, block_ms = self.state.keys.notifications, math.ceil(block * 1000)
        time_before, notified = yield Armed(key, request.count, block_ms, None, math.inf, self.waiting, None, True)
        if isinstance(notified, Refused):
            yield from _pause(notified)
        self.state.watch = 0
        self.quiet = self._heed(notified, _time_of(time_before, now, None))

    def _heed(self, notified: Any, before: TimeBefore | None) -> bool:
        """Watch from now on, if a notification says until when. Return whether that is all that the reply says."""
        told = [] if isinstance(notified, Refused) else entries_of(notified)
        moments = [int(moment[1]) for _, fields in told if (moment := _MOMENT.fullmatch(fields[1]))]
        if not moments or before is None:
            return False
        self.state.turn = self.state.turn or max(0, self.state.watch)
        self.state.watch = min(moments)
        # The moment is by the server's clock. Its time before the wait tells how far that is from ours.
        self.wake_at = min(self.wake_at, before.at + self.state.watch / 1000 - before.shown)
        return len(moments) == len(told)

    def _until(self) -> float:
        """Return the local time until which somebody waits."""
        return max([waiter.until for waiter in self.waiting.waiters()], default=-math.inf)

    def _left(self, until: float) -> float:
        """Return for how many seconds somebody waits who waits until then: at most a slice."""
        return max(0.0, min(self.state.wait_slice, until - self.clock.monotonic()))

    def _judge(self, read: ReadCall, reply: Any, granted: float | None) -> ReadReply:
        found = read_reply(self.state, read, reply, granted)
        # The answer is here, so nothing is outstanding; its messages are handed out, or given back, by `_deliver`.
        self.outstanding.holder = ""
        self.quiet = not (found.rows or found.more or found.moved or found.jumped)
        self.wake_at = found.wake_at(self.clock.monotonic())
        return found


class TimeBefore(NamedTuple):
    """The server's clock before a wait: it showed `shown`, in seconds, at local time `at` or later."""

    at: float
    shown: float


def _time_of(told: Any, sent: float, known: ServerTime | None) -> TimeBefore | None:
    """Return what the server *told* before a wait that was *sent* then, or was *known* if it was not asked."""
    if isinstance(told, Refused):
        return None
    if told is not None:
        return TimeBefore(sent, int(told[0]) + int(told[1]) / 1e6)
    # Of whole ms: `safe_deadline` allows for that.
    return TimeBefore(known.at, known.ms / 1000) if known else None


def _granted(sent: float, before: TimeBefore | None, reply: Any, arrived: float) -> float:
    # Then leases count from when the read was sent, before the wait. That is too early, so it is safe.
    if before is None or len(reply) < 2:
        return sent
    return max(sent, earliest_grant(before.at, before.shown, int(reply[1]) / 1000, arrived))


def _pause(refused: Refused) -> Op[None]:
    """Pause, if a wait that was *refused* may succeed soon; else raise what it was refused for."""
    if refused.code not in _ENDED:
        raise refused
    yield Sleep(PAUSE)
