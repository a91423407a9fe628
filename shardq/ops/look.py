"""One look of a reader: calls of read.lua until one counts, which finds messages or that there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardq.ops.acks import Acks, ack_and_read, to_count
from shardq.ops.opening import reopen
from shardq.ops.read_call import ALL_DECLARED, ReadCall, ReadReply, read_call, read_reply, recover
from shardq.ops.retry import TRANSIENT, give_up, pause_after, refuse
from shardq.ops.state import QueueState
from shardq.ops.steps import Op, Refused, Sleep, Unanswered
from shardq.ops.waiting import MAX_PER_CALL, Outstanding, Request


def look(
    state: QueueState,
    request: Request,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None = None,
    first: ReadCall | None = None,
) -> Op[ReadReply]:
    """Read until messages come or there are none. After a jump of the server's clock, too, the next call is at once.

    *acks* go out with the first call. If they were done only after it, and it found nothing, the next call is at once:
    they may have made room for messages. *first* is the first call, if the caller has made it.
    """
    part = request if request.count <= MAX_PER_CALL else replace(request, count=MAX_PER_CALL)
    while True:
        attempt, reply, acked = yield from _answered_call(state, part, block, until, outstanding, acks, first)
        acks = first = None
        outstanding.holder = ""
        found = read_reply(state, attempt, reply)
        # With rows in hand the queue is looked up by the next call: a failure here would lose them.
        if found.moved and not found.rows:
            yield from reopen(state, until)
        if found.jumped or not (acked or found.rows):
            continue
        if found.rows or not found.more:
            return found
        if state.clock.monotonic() >= until:
            return ReadReply(
                [], wait_ms=0, more=True, moved=found.moved
            )  # other readers are always faster, or another program writes to the keys


def _answered_call(
    state: QueueState,
    request: Request,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None,
    first: ReadCall | None,
) -> Op[tuple[ReadCall, Any, bool]]:
    """Return a read call, its reply, and whether the *acks*, if any, were done before it.

    If a reply is lost, its leases are given back before the next try. Each try is a new call with a new holder and a
    new reading of the clock. So if giving back the leases of one try happens late, it does not end the leases of the
    next try.
    """
    tries = 0
    while True:
        attempt = first or read_call(state, request, block, outstanding, declare=ALL_DECLARED)
        attempt.call.until, first = until, None
        try:
            if acks is None:
                return attempt, (yield attempt.call), True
            taken, acks = acks, None
            reply, acked = yield from ack_and_read(state, taken, attempt, until, outstanding)
            if not isinstance(reply, (Refused, Unanswered)):
                return attempt, reply, acked
            if to_count(reply) is None:
                continue
            raise reply
        except Refused as refused:
            if refused.code not in TRANSIENT:
                refuse(refused)
            sent, last = False, refused.code
        except Unanswered as lost:
            sent, last = lost.sent, str(lost)
        tries += 1
        if sent:
            yield from recover(state, outstanding, until)
        if state.clock.monotonic() >= until:
            give_up(tries, False, last)
        yield Sleep(pause_after(tries))
