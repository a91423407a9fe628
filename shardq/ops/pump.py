"""The pump: it reads on behalf of all waiters of one queue, over one blocking connection.

It sends a blocking wait for a notification and, in the same pipeline, the read script (`Armed`). The server runs the
script the moment the wait ends, so the message arrives together with the wake-up. A read that finds nothing clears the
notifications and tells writers that a reader waits. Only then may the pump block: after a read that found something,
more messages may be there for which no notification comes, so the pump reads once more without blocking.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from shardq.errors import BackendError
from shardq.ops.opening import upkeep
from shardq.ops.read_call import ALL_DECLARED, ReadCall, ReadReply, give_back, read_call, read_reply, recover
from shardq.ops.retry import TRANSIENT
from shardq.ops.state import QueueState
from shardq.ops.steps import Armed, Op, Refused, Sleep, Unanswered
from shardq.ops.waiting import Outstanding, Request
from shardq.protocol.lease import earliest_grant

ARMED_DECLARED: Final = 256
"""An armed read cannot know which stream will be next, so it declares all streams, if there are at most so many."""

LATENESS: Final = 0.5
"""Seconds after the end of its wait at which an answer is overdue. Redis ends a wait up to 100 ms late."""

PAUSE: Final = 0.01
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
    state.waiting.overdue_at = math.inf
    yield Sleep(PAUSE)
    lost_read = outstanding if outstanding.holder else None
    if not state.waiting.release(lost_read, failure) and lost_read:
        yield from _ignore_failure(recover(state, lost_read, state.until()))


class _Pump:
    """The pump of one queue.

    `quiet` is true if its last read found nothing: then a notification comes for every later message. At local time
    `wake_at` there is a reason to read again without a notification, such as a message that comes due.
    """

    def __init__(self, state: QueueState, outstanding: Outstanding) -> None:
        self.state, self.clock, self.waiting, self.outstanding = state, state.clock, state.waiting, outstanding
        waiters = self.waiting.waiters()
        self.quiet = any(waiter.read_at > self.waiting.found_at for waiter in waiters)
        self.wake_at = min((waiter.wake_at for waiter in waiters), default=math.inf)

    def run(self) -> Op[None]:
        """Make one read after the other, until there are no waiters."""
        while True:
            yield from upkeep(self.state, self.clock.monotonic())
            if self.quiet:
                self.waiting.expire_all(self.clock.monotonic())
            request = self.waiting.request()
            if request is None:
                return
            found = yield from (self._armed(request) if self.quiet else self._plain(request))
            if found is None:
                continue
            if found.rows:
                yield from self._deliver(request, found)
            if found.moved:
                self.waiting.release()
                return

    def _deliver(self, request: Request, found: ReadReply) -> Op[None]:
        self.waiting.found_at = self.clock.monotonic()
        outstanding = replace(self.outstanding)
        if unclaimed := self.waiting.deliver(request, found.rows, outstanding, more=found.more):
            yield from _ignore_failure(give_back(self.state, unclaimed, self.state.until()))

    def _plain(self, request: Request) -> Op[ReadReply]:
        read = read_call(self.state, request, self.state.wait_slice, self.outstanding, declare=ALL_DECLARED)
        self.waiting.overdue_at = read.sent + LATENESS
        reply = yield read.call
        return self._judge(read, reply, None)

    def _armed(self, request: Request) -> Op[ReadReply | None]:
        state, now = self.state, self.clock.monotonic()
        until = max((waiter.until for waiter in self.waiting.waiters()), default=now)
        block = max(0.001, min(state.wait_slice, self.wake_at - now, until - now))
        read = read_call(state, request, state.wait_slice, self.outstanding, declare=ARMED_DECLARED, delay=block)
        self.waiting.overdue_at = read.sent + block + LATENESS
        key, block_ms = state.keys.notifications, math.ceil(block * 1000)
        _, time_before, notified, reply = yield Armed(
            key, request.count, block_ms, read.call, self.wake_at, self.waiting
        )
        if isinstance(notified, Refused):
            if notified.code not in _ENDED:
                raise notified
            yield Sleep(PAUSE)
        if isinstance(reply, Refused):
            if reply.code != "NOSCRIPT":
                raise read.call.explain(reply)
            self.quiet = False
            return None
        arrived = self.clock.monotonic()
        return self._judge(read, reply, _granted(read.sent, time_before, reply, arrived))

    def _judge(self, read: ReadCall, reply: Any, granted: float | None) -> ReadReply:
        found = read_reply(self.state, read, reply, granted)
        self.outstanding.holder = ""
        self.quiet = not (found.rows or found.more or found.moved or found.jumped)
        self.wake_at = found.wake_at(self.clock.monotonic())
        return found


def _granted(sent: float, time_before: Any, reply: Any, arrived: float) -> float:
    if isinstance(time_before, Refused) or len(reply) < 2:
        return sent
    return earliest_grant(sent, int(time_before[0]) + int(time_before[1]) / 1e6, int(reply[1]) / 1000, arrived)


def _ignore_failure(op: Op[Any]) -> Op[None]:
    """Run *op*, which gives messages back. Ignore its failure, since the leases end by themselves."""
    try:
        yield from op
    except BackendError:
        return
