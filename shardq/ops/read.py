"""read: deliver messages, and wait for them without losing a wake-up and without giving up early."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from shardq.arguments import MAX_BLOCK, lease_time, seconds, whole
from shardq.errors import BackendError
from shardq.model import Received
from shardq.ops.acks import Acks, ack_and_read, ack_earlier, to_count
from shardq.ops.first_look import Look
from shardq.ops.opening import needs_upkeep, open_queue, reopen, upkeep
from shardq.ops.read_call import ALL_DECLARED, ReadCall, ReadReply, read_call, read_reply, recover, request_of
from shardq.ops.retry import TRANSIENT, give_up, pause_after, refuse
from shardq.ops.state import QueueState
from shardq.ops.steps import Op, Refused, Sleep, Unanswered, Wait
from shardq.ops.waiting import MAX_PER_CALL, Outstanding, Request, Waiter
from shardq.sharding import MAX_STREAMS

log = logging.getLogger("shardq")
MAX_COUNT = 1000


def read(
    state: QueueState,
    count: int,
    block: float = 0.0,
    visibility: float | None = None,
    prefer: int | None = None,
    timeout: float | None = None,
    outstanding: Outstanding | None = None,
    acks: Acks | None = None,
    look: Look | None = None,
) -> Op[list[Received]]:
    """Return up to *count* messages, after waiting up to *block* seconds for the first one; [] if none came by then.

    *outstanding* always says what a caller that cancels the read must give back. *acks* are done before the first look,
    the last ones in the same round trip. They do not wait for messages. If the first *look* was made already, the
    operation goes on from its outcome.
    """
    clock = state.clock
    until = look.until if look else clock.monotonic() + block
    if look is None and not state.epoch:
        yield from open_queue(state, state.until(timeout))
    if acks is not None and acks.earlier:
        yield from ack_earlier(state, acks, max(until, state.until(timeout)))
    request = look.request if look else request_of(state, count, visibility, prefer)
    outstanding = outstanding or Outstanding()
    while True:
        now = look.attempt.sent if look else clock.monotonic()
        if look is None and needs_upkeep(state):
            yield from upkeep(state, now)
        remaining = max(0.0, until - now)
        # A failed call is tried again even if the wait is short.
        call_until = look.call_until if look else max(until, state.until(timeout))
        block = min(remaining, state.wait_slice)
        found = yield from _attempt(state, request, block, call_until, outstanding, acks, look)
        acks = look = None
        if len(found.rows) == count:  # the common case
            return found.rows
        read_at, now = now, clock.monotonic()
        if found.rows or now >= until:
            return (yield from _fill(state, request, found, call_until, outstanding))
        waiter = Waiter(state.waiting, request, until=until, read_at=read_at, wake_at=found.wake_at(now))
        yield Wait(state, waiter)
        if waiter.rows is not None:
            found = ReadReply(waiter.rows, more=waiter.more)
            return (yield from _fill(state, request, found, call_until, outstanding))
        if waiter.failure is not None:
            _raise_failure(waiter.failure)
        if waiter.outstanding is not None:
            yield from recover(state, waiter.outstanding, call_until)


def _raise_failure(failure: Exception) -> None:
    if isinstance(failure, Refused):
        refuse(failure)
    raise failure


def _fill(
    state: QueueState, request: Request, found: ReadReply, until: float, outstanding: Outstanding
) -> Op[list[Received]]:
    """Return the rows *found* and more, up to the number requested. A failure does not lose the rows read so far.

    The server bounds the work of one call, so a large read takes several.
    """
    rows = outstanding.rows = found.rows
    try:
        while found.rows and found.more and len(rows) < request.count and state.clock.monotonic() < until:
            rest = replace(request, count=request.count - len(rows), prefer=None)
            found = yield from _attempt(state, rest, 0.0, until, outstanding)
            rows += found.rows
    except BackendError as error:
        log.warning("a read of queue %r got %d of %d messages: %s", state.keys.name, len(rows), request.count, error)
    return rows


def _attempt(
    state: QueueState,
    request: Request,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None = None,
    look: Look | None = None,
) -> Op[ReadReply]:
    """Read until messages come or there are none. After a jump of the server's clock, too, the next call is at once.

    *acks* go out with the first call. If they were done only after it, and it found nothing, the next call is at once:
    they may have made room for messages. A *look* is the first call, which was made already.
    """
    part = request if request.count <= MAX_PER_CALL else replace(request, count=MAX_PER_CALL)
    while True:
        attempt, reply, acked = yield from _answered_call(state, part, block, until, outstanding, acks, look)
        acks = look = None
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
    look: Look | None,
) -> Op[tuple[ReadCall, Any, bool]]:
    """Return a read call, its reply, and whether the *acks*, if any, were done before it.

    If a reply is lost, its leases are given back before the next try. Each try is a new call with a new holder and a
    new reading of the clock. So if giving back the leases of one try happens late, it does not end the leases of the
    next try.
    """
    tries = 0
    while True:
        made, look = look, None
        attempt = made.attempt if made else read_call(state, request, block, outstanding, declare=ALL_DECLARED)
        attempt.call.until = until
        try:
            if acks is None:
                return attempt, (made.reply() if made else (yield attempt.call)), True
            taken, acks = acks, None
            reply, acked = yield from ack_and_read(state, taken, attempt, until, outstanding, made and made.outcome)
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


def checked_count(count: int) -> int:
    """Return *count* if one read may return so many messages; else ConfigError."""
    return whole("count", count, 1, MAX_COUNT)


def checked_stream(number: int | None) -> int | None:
    """Return *number* if it can be the number of a stream; else ConfigError."""
    return None if number is None else whole("prefer_stream", number, 0, MAX_STREAMS - 1, "a stream's number")


def checked_block(block: float, visibility: float | None) -> None:
    """ConfigError if *block* is not a valid time to wait, or *visibility* not a valid lease time."""
    if block != 0:
        seconds("block", block, 0, MAX_BLOCK)
    if visibility is not None:
        lease_time("visibility_timeout", visibility)
