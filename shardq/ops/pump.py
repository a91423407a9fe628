"""The pump: reads on behalf of all that wait on one queue, over one blocking connection.

It sends a wait for notifications and, in the same pipeline, the look that is to follow (`Armed`). The server runs that
look the moment the wait ends, so the message comes with the wake-up. A look that finds nothing makes the next wait
safe: it clears the notifications and lets writers know that somebody waits. After one that found something, messages
may lie there unannounced, so an ordinary look comes first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from shardq.errors import BackendError
from shardq.ops.look import ALL_DECLARED, Look, Seen, given_back, look, recovered, seen
from shardq.ops.opening import upkeep
from shardq.ops.retry import TRANSIENT
from shardq.ops.state import QueueState
from shardq.ops.steps import Armed, Op, Refused, Sleep, Unanswered
from shardq.ops.waiting import Asked, Want
from shardq.protocol.lease import granted_after

ARMED_DECLARED: Final = 256
"""An armed look cannot know which stream will be next, so it declares all, if they are no more than this."""

LATENESS: Final = 0.5
"""Seconds after which an answer is overdue: the server ends a wait up to 100 ms late."""

PAUSE: Final = 0.01
_ENDED: Final = frozenset({"NOGROUP", "NOSCRIPT"}) | TRANSIENT


def pump(state: QueueState) -> Op[None]:
    """Read for those who wait until nobody does. On trouble all look for themselves: their looks know how to go on."""
    asked = Asked()
    try:
        yield from _Pump(state, asked).run()
        return
    except Unanswered as lost:
        asked.holder = asked.holder if lost.sent else ""
        failure: Exception | None = None
    except Refused as refused:
        asked.holder, failure = "", None if refused.code in _ENDED else refused
    state.waiting.overdue_at = math.inf
    yield Sleep(PAUSE)
    lost_look = asked if asked.holder else None
    if not state.waiting.release(lost_look, failure) and lost_look:
        yield from _tried(recovered(state, lost_look, state.until()))


class _Pump:
    """The pump of one queue. `quiet`: its last look found nothing, so whatever came since then is announced.

    `wake_at`: the local time at which there is a reason to look again, whether anything is announced or not.
    """

    def __init__(self, state: QueueState, asked: Asked) -> None:
        self.state, self.clock, self.waiting, self.asked = state, state.clock, state.waiting, asked
        waiters = self.waiting.waiters()
        self.quiet = any(waiter.looked_at > self.waiting.found_at for waiter in waiters)
        self.wake_at = min((waiter.wake_at for waiter in waiters), default=math.inf)

    def run(self) -> Op[None]:
        """Look after look, until nobody waits."""
        while True:
            yield from upkeep(self.state, self.clock.monotonic())
            if self.quiet:
                self.waiting.expire_all(self.clock.monotonic())
            want = self.waiting.want()
            if want is None:
                return
            found = yield from (self._armed(want) if self.quiet else self._plain(want))
            if found is None:
                continue
            if found.rows:
                yield from self._hand_out(want, found)
            if found.moved:
                self.waiting.release()
                return

    def _hand_out(self, want: Want, found: Seen) -> Op[None]:
        self.waiting.found_at = self.clock.monotonic()
        asked = replace(self.asked)
        if left := self.waiting.hand_out(want, found.rows, asked):
            yield from _tried(given_back(self.state, left, self.state.until()))

    def _plain(self, want: Want) -> Op[Seen]:
        each = look(self.state, want, self.state.wait_slice, self.asked, declare=ALL_DECLARED)
        self.waiting.overdue_at = each.sent + LATENESS
        reply = yield each.call
        return self._noted(each, reply, None)

    def _armed(self, want: Want) -> Op[Seen | None]:
        state, now = self.state, self.clock.monotonic()
        until = max((waiter.until for waiter in self.waiting.waiters()), default=now)
        block = max(0.001, min(state.wait_slice, self.wake_at - now, until - now))
        each = look(state, want, state.wait_slice, self.asked, declare=ARMED_DECLARED, delay=block)
        self.waiting.overdue_at = each.sent + block + LATENESS
        key, block_ms = state.keys.notifications, math.ceil(block * 1000)
        _, shown, woken, reply = yield Armed(key, want.count, block_ms, each.call, self.wake_at, self.waiting)
        if isinstance(woken, Refused):
            if woken.code not in _ENDED:
                raise woken
            yield Sleep(PAUSE)
        if isinstance(reply, Refused):
            if reply.code != "NOSCRIPT":
                raise reply
            self.quiet = False
            return None
        arrived = self.clock.monotonic()
        return self._noted(each, reply, _granted(each.sent, shown, reply, arrived))

    def _noted(self, each: Look, reply: Any, granted: float | None) -> Seen:
        found = seen(self.state, each, reply, granted)
        self.asked.holder = ""
        self.quiet = not (found.rows or found.miss or found.moved or found.jumped)
        self.wake_at = found.wake_at(self.clock.monotonic())
        return found


def _granted(sent: float, shown: Any, reply: Any, arrived: float) -> float:
    if isinstance(shown, Refused) or len(reply) < 2:
        return sent
    return granted_after(sent, int(shown[0]) + int(shown[1]) / 1e6, int(reply[1]) / 1000, arrived)


def _tried(op: Op[Any]) -> Op[None]:
    """Run *op*; if it fails, the leases end by themselves."""
    try:
        yield from op
    except BackendError:
        return
