"""read: hand out messages, waiting for them without losing a wake-up and without giving up early."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from shardq.arguments import MAX_BLOCK, lease_time, seconds, whole
from shardq.errors import BackendError
from shardq.model import Received
from shardq.ops.opening import open_queue, reopen, upkeep
from shardq.ops.read_call import ALL_DECLARED, ReadCall, ReadReply, read_call, read_reply, recover
from shardq.ops.retry import TRANSIENT, give_up, pause_after, refuse
from shardq.ops.state import QueueState
from shardq.ops.steps import Op, Refused, Sleep, Unanswered, Wait
from shardq.ops.waiting import MAX_PER_CALL, MAX_TAKEN_BACK, Outstanding, Request, Waiter
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
) -> Op[list[Received]]:
    """Up to *count* messages; waits up to *block* seconds for the first one. [] when these are over, never before."""
    clock = state.clock
    until = clock.monotonic() + block
    yield from open_queue(state, state.until(timeout))
    request = Request(
        count,
        state.config.visibility_timeout if visibility is None else visibility,
        prefer if prefer is not None and prefer < state.streams else None,
    )
    outstanding = outstanding or Outstanding()
    while True:
        now = clock.monotonic()
        yield from upkeep(state, now)
        left = max(0.0, until - now)
        call_until = max(until, state.until(timeout))  # a failed call is tried again, however short the wait
        found = yield from _attempt(state, request, min(left, state.wait_slice), call_until, outstanding)
        read_at, now = now, clock.monotonic()
        if found.rows or now >= until:
            return (yield from _fill(state, request, found.rows, call_until, outstanding))
        waiter = Waiter(state.waiting, request, until=until, read_at=read_at, wake_at=found.wake_at(now))
        yield Wait(state, waiter)
        if waiter.rows is not None:
            return (yield from _fill(state, request, waiter.rows, call_until, outstanding))
        if waiter.failure is not None:
            _raise_failure(waiter.failure)
        if waiter.outstanding is not None:
            yield from recover(state, waiter.outstanding, call_until)


def _raise_failure(failure: Exception) -> None:
    if isinstance(failure, Refused):
        refuse(failure)
    raise failure


def _fill(
    state: QueueState, request: Request, rows: list[Received], until: float, outstanding: Outstanding
) -> Op[list[Received]]:
    """*rows* and what else of the request is there; what was granted is never lost to trouble.

    A large read takes several calls: the next one when the last brought all that it could have taken back.
    """
    outstanding.rows, size = rows, len(rows)
    try:
        while size >= MAX_TAKEN_BACK and len(rows) < request.count and state.clock.monotonic() < until:
            rest = replace(request, count=request.count - len(rows), prefer=None)
            more = yield from _attempt(state, rest, 0.0, until, outstanding)
            rows += more.rows
            size = len(more.rows)
    except BackendError as error:
        log.warning("a read of queue %r got %d of %d messages: %s", state.keys.name, len(rows), request.count, error)
    return rows


def _attempt(
    state: QueueState, request: Request, block: float, until: float, outstanding: Outstanding
) -> Op[ReadReply]:
    """Read until a reply counts: after a miss or a jump the next one comes at once."""
    part = replace(request, count=min(request.count, MAX_PER_CALL))
    while True:
        attempt, reply = yield from _answered_call(state, part, block, until, outstanding)
        outstanding.holder = ""
        found = read_reply(state, attempt, reply)
        # Else the next call looks it up: what was granted must not be lost to trouble.
        if found.moved and not found.rows:
            yield from reopen(state, until)
        if found.jumped:
            continue
        if reply[0] == b"OK":
            return found
        if found.miss and state.clock.monotonic() >= until:
            return replace(found, wait_ms=0)  # others are always faster, or something else writes to the queue's keys


def _answered_call(
    state: QueueState, request: Request, block: float, until: float, outstanding: Outstanding
) -> Op[tuple[ReadCall, Any]]:
    """One read call and its reply. When a reply is lost, what it had granted is given back before the next read.

    Each try is a call of its own: it says what the server's clock should show now, and its leases are its own, so a
    giving back that comes late takes nothing of what the next try was granted.
    """
    tries = 0
    while True:
        attempt = read_call(state, request, block, outstanding, declare=ALL_DECLARED)
        attempt.call.until = until
        try:
            return attempt, (yield attempt.call)
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
    """*count* if it can be asked for in one read; else ConfigError."""
    return whole("count", count, 1, MAX_COUNT)


def checked_stream(number: int | None) -> int | None:
    """*number* if it can be a stream's; else ConfigError."""
    return None if number is None else whole("prefer_stream", number, 0, MAX_STREAMS - 1, "a stream's number")


def checked_block(block: float, visibility: float | None) -> None:
    """ConfigError for a bad time to wait or to lease for."""
    seconds("block", block, 0, MAX_BLOCK)
    if visibility is not None:
        lease_time("visibility_timeout", visibility)
