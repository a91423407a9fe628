"""read: deliver messages, and wait for them without losing a wake-up and without giving up early."""

from __future__ import annotations

import logging
import math

from msgspec.structs import replace

from shardq.arguments import MAX_BLOCK, lease_time, seconds, whole
from shardq.errors import ShardqError
from shardq.model import Received
from shardq.ops.queue.opening import await_queue, open_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import refuse
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op, Refused, Share, Wait
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.read.acks import Acks, ack_alone, ack_earlier
from shardq.ops.read.command import MAX_SHARED_READ, ReadReply, request_of
from shardq.ops.read.give_back import recover_all
from shardq.ops.read.look import Look, look
from shardq.ops.read.pump import pump
from shardq.ops.read.sharing import Want, reads_of
from shardq.ops.read.waiting import Outstanding, ReadRequest, ReadWaiter, waiting_of
from shardq.sharding import MAX_STREAMS

log = logging.getLogger("shardq")
MAX_COUNT = 1000
EMPTY_CALLS = 5
"""How many calls that bring nothing a read makes in a row, if it has messages, but less than half of what it wants."""

LAST_CALLS = 2
"""The same of a read that has half of what it wants. Two, since the first may lack a stream that the read needs."""


def read(
    state: QueueState,
    count: int,
    block: float = 0.0,
    visibility: float | None = None,
    prefer: int | None = None,
    timeout: float | None = None,
    outstanding: Outstanding | None = None,
    acks: Acks | None = None,
    made: Look | None = None,
    *,
    is_bare: bool = False,
) -> Op[list[Received]]:
    """Return up to *count* messages, after waiting up to *block* seconds for the first one; [] if none came by then.

    *outstanding* always says what a caller that cancels the read must give back. *acks* are done before the first try,
    the last ones in the same round trip. They do not wait for messages. If the first try was *made* already, the
    operation continues from its outcome. If it *is_bare*, each body is the size of its payload, as text.
    """
    clock = state.clock
    # Two ends: `until` that of waiting for messages, `call_until` that of trying a call that failed.
    until = made.until if made else clock.monotonic() + block
    if made is None and not state.epoch:
        yield from await_queue(state, block, state.until(timeout))
    if acks is not None and acks.earlier:
        yield from ack_earlier(state, acks, max(until, state.until(timeout)))
    request = made.request if made else request_of(state, count, visibility, prefer, is_bare=is_bare)
    outstanding = outstanding or Outstanding()
    while True:
        now = made.since if made else clock.monotonic()
        if made is None and state.view.has_upkeep:
            yield from upkeep(state, now)
        remaining = max(0.0, until - now)
        # A failed call is tried again even if the wait is short.
        call_until = made.call_until if made else max(until, state.until(timeout))
        block = min(remaining, state.wait_slice)
        found = yield from _look(state, request, block, call_until, outstanding, acks, made)
        acks = made = None
        if len(found.rows) == count:  # the common case
            return found.rows
        read_at, now = now, clock.monotonic()
        # The first rows end the wait; more come only if they are there already.
        if found.rows or now >= until or _is_spread(state, outstanding, until - now):
            return (yield from _fill(state, request, found, call_until, outstanding))
        # `read_at` is from before the look: if anybody found something after that, this look proves nothing to the
        # pump.
        waiter = ReadWaiter(waiting_of(state), request, until=until, read_at=read_at, wake_at=found.wake_at(now))
        yield Wait(state, waiter, pump)
        if waiter.rows is not None:
            found = ReadReply(waiter.rows, more=waiter.more)
            return (yield from _fill(state, request, found, call_until, outstanding))
        if waiter.failure is not None:
            _raise_failure(waiter.failure)
        # The pump lost an answer: the messages that its read was granted are given back before this reader reads by
        # itself.
        if waiter.outstanding is not None:
            yield from recover_all(state, waiter.outstanding, call_until)


def _is_spread(state: QueueState, outstanding: Outstanding, left: float) -> bool:
    """Return whether the queue was given partitions since the read began. Then it ends, with *left* seconds to wait."""
    if state.parts is None:
        return False
    outstanding.left = left
    return True


def read_now(
    state: QueueState,
    count: int,
    visibility: float | None,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None = None,
    due: int | None = None,
) -> Op[list[Received]]:
    """Return up to *count* messages that are there, in calls that nobody shares; [] if none is. *acks* as of `read`.

    *due* as of ReadRequest.

    For a reader of several queues, whose calls go out together. QueueMissing if there is no such queue.
    """
    yield from open_queue(state, until)
    if state.view.has_upkeep:
        yield from upkeep(state, state.clock.monotonic())
    if acks is not None and acks.earlier:
        yield from ack_earlier(state, acks, until)
    request = request_of(state, count, visibility, None, due=due)
    found = yield from look(state, request, 0.0, until, outstanding, acks)
    return (yield from _fill(state, request, found, until, outstanding))


def _look(
    state: QueueState,
    request: ReadRequest,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None,
    made: Look | None,
) -> Op[ReadReply]:
    """Look for messages, in a call that others share if it is for few and has no piggybacked acks.

    If a first try was *made*, continue from its outcome, alone. A reader that may wait without a look only acks. One
    that carries a rider looks, by a call of its own.
    """
    only_acked = made is not None and made.attempt is None
    rides = state.rider is not None
    if only_acked or (block and made is None and not rides and waiting_of(state).proven_for(state.clock.monotonic())):
        if acks is not None:
            yield from ack_alone(state, acks, until, made and made.outcome)
        return ReadReply([], wait_ms=math.floor(1000 * waiting_of(state).proven_for(state.clock.monotonic())))
    if made is not None or acks is not None or rides or request.count > MAX_SHARED_READ:
        return (yield from look(state, request, block, until, outstanding, acks, made))
    while True:
        found: ReadReply = yield Share(reads_of(state), Want(request, block, outstanding), until)
        if found.rows or not (found.more or found.jumped):
            return found
        if state.clock.monotonic() >= until:
            return found


def _raise_failure(failure: Exception) -> None:
    if isinstance(failure, Refused):
        refuse(failure)
    raise failure


def _fill(
    state: QueueState, request: ReadRequest, found: ReadReply, until: float, outstanding: Outstanding
) -> Op[list[Received]]:
    """Return the rows *found* and more, up to the number requested. A failure does not lose the rows read so far.

    The server bounds the work of one call, so a large read takes several. With rows in hand it does not wait until the
    server has done what it has in mass, such as to take back leases that ended together.
    """
    rows = outstanding.rows = found.rows
    while found.rows and found.more and len(rows) < request.count and state.clock.monotonic() < until:
        # The preferred stream had its message out of turn, and the first call has said what is due to those who wait.
        due = None if request.due is None else 0
        rest = replace(request, count=request.count - len(rows), prefer=None, due=due)
        most = EMPTY_CALLS if 2 * len(rows) < request.count else LAST_CALLS
        more = yield from outcome_of(look(state, rest, 0.0, until, outstanding, most=most))
        if isinstance(more, ShardqError):
            log.warning("a read of queue %r got %d of %d messages: %s", state.keys.name, len(rows), request.count, more)
            break
        found = more
        rows += found.rows
    return rows


def checked_count(count: int) -> int:
    """Return *count* if one read may return as many messages; else ConfigError."""
    return whole("count", count, 1, MAX_COUNT)


def checked_wanted(block: float, visibility: float | None, prefer: int | None) -> None:
    """ConfigError if one of these is not a time to wait, a lease time or the number of a stream."""
    seconds("block", block, 0, MAX_BLOCK)
    if visibility is not None:
        lease_time("visibility_timeout", visibility)
    if prefer is not None:
        whole("prefer_stream", prefer, 0, MAX_STREAMS - 1, "a stream's number")
