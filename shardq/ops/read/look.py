"""One look of a reader: calls of read.lua until one counts, which finds messages or that there are none.

In the common case the first try finds all that is wanted, and acks at most one delivery before: `fast_read` makes it
without a generator, and the driver sends it. If anything else comes of it, the operation continues from its outcome.

what came of a try                        what follows
messages; or none, and there is no more   the look is over
none, but there may be more               the next try at once, with the streams that the reply named
the queue has changed, no messages        it is looked up first, then as above; one that was missing: the next try
the clock jumped; or the ack was late     the next try at once
no answer, though it may have run         what it was granted goes back, then a pause and the next try
a refusal that passes                     a pause and the next try
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

from msgspec.structs import replace

from shardq.model import Received
from shardq.ops.queue.opening import reopen
from shardq.ops.queue.retry import TRANSIENT, give_up, pause_after, refuse
from shardq.ops.queue.riding import with_rider
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Op, Refused, Sendable, Sleep, Unanswered
from shardq.ops.read.acks import Acks, ack_and_read, to_count
from shardq.ops.read.command import (
    ALL_DECLARED,
    MAX_SHARED_READ,
    ReadCall,
    ReadReply,
    plain_rows,
    read_call,
    read_reply,
    request_of,
)
from shardq.ops.read.give_back import recover_all
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding, ReadRequest
from shardq.ops.settle.command import lone_ack
from shardq.ops.settle.settle import unsure_of
from shardq.ops.sharing.coalescing import Coalescer

KEPT_NOTHING: Final = "this read kept no message"
"""The caller learns this where a read gets no answer. Deliveries that it was to ack say themselves whether they are."""


class Look:
    """The first try of a read. `step` makes it, and `outcome` is what came of that: a reply, or a failure.

    It began at local time `since`. At `until` its caller stops waiting for messages, at `call_until` it gives up the
    try. It is `made` only if nobody else is at the `coalescer`, where readers of few messages meet to share calls. A
    reader that may wait without a look only acks: then there is no `attempt`.
    """

    __slots__ = (
        "acks", "attempt", "call_until", "coalescer", "made", "outcome", "request", "since", "state", "step", "until",
    )  # fmt: skip

    state: QueueState
    request: ReadRequest
    attempt: ReadCall | None
    step: Sendable | Batch
    acks: Acks | None
    coalescer: Coalescer[Any, Any] | None
    since: float
    until: float
    call_until: float
    made: bool
    outcome: Any

    def rows(self, outcome: Any) -> list[Received] | None:
        """Return the messages if *outcome* is of the common case; None if the operation must look at it."""
        self.outcome = reply = outcome
        if self.attempt is None:
            return None
        if self.acks is not None:
            acked, reply = outcome
            if isinstance(acked, Exception) or acked[1] != b"o":
                return None
        if isinstance(reply, Exception):
            return None
        rows = plain_rows(self.state, self.attempt, reply)
        if rows is not None and self.state.unsure:
            self._is_sure()
        return rows

    def reply(self) -> Any:
        """Return the reply, or raise the failure, for a look without an ack."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def drop(self) -> None:
        """Note that the call may have happened: its caller was interrupted."""
        if self.acks is not None:
            unsure_of(self.state, [delivery for _, _, delivery in self.acks.last])

    def _is_sure(self) -> None:
        if self.acks is not None:
            self.state.unsure.difference_update([delivery.token for _, _, delivery in self.acks.last])


def fast_read(
    state: QueueState,
    count: int,
    block: float,
    visibility: float | None,
    prefer: int | None,
    timeout: float | None,
    outstanding: Outstanding,
    acks: Acks | None,
    *,
    alone: bool = False,
    due: int | None = None,
) -> Look | None:
    """Return the first try of a read, with the only one of *acks* piggybacked on it. *alone*, it shares no call.

    *due* as of ReadRequest. None if the operation must do other things first: open the queue, do upkeep, make several
    acks, share a call, carry a rider, or wait without a look and an ack.
    """
    view = state.view
    if not view.epoch or view.has_upkeep or count > MAX_PER_CALL or state.rider is not None:
        return None
    waiting = state.waiting.get("read") if block else None
    only_acks = waiting is not None and waiting.proven_for(state.clock.monotonic()) > 0
    coalescer = None
    if acks is not None:
        if acks.earlier or len(acks.last) != 1:
            return None
    elif only_acks:
        return None
    elif count <= MAX_SHARED_READ and not alone:
        coalescer = state.coalescers.get("read")  # it is made by the first read that shares a call
        if coalescer is None or coalescer.calls:
            return None
    look = Look()
    look.state, look.acks, look.coalescer, look.made = state, acks, coalescer, False
    look.request = request = request_of(state, count, visibility, prefer, due=due)
    attempt = None
    if not only_acks:
        attempt = read_call(state, request, min(block, state.wait_slice), outstanding, declare=ALL_DECLARED)
    look.attempt, look.since = attempt, attempt.sent if attempt else state.clock.monotonic()
    look.until = look.since + block
    look.call_until = until = max(look.until, look.since + state.timeout if timeout is None else state.until(timeout))
    if attempt is None:
        look.step = lone_ack(state, cast("Acks", acks).last, until)
        return look
    attempt.call.until = until
    look.step = (
        attempt.call if acks is None else Batch((lone_ack(state, acks.last, until), attempt.call), until, once=True)
    )
    return look


def look(
    state: QueueState,
    request: ReadRequest,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None = None,
    made: Look | None = None,
    first: ReadCall | None = None,
    most: float = math.inf,
) -> Op[ReadReply]:
    """Read until messages come or there are none. After a jump of the server's clock, too, the next call is at once.

    It ends after *most* calls, too.

    *acks* go out with the first call. If they were done only after it, and it found nothing, the next call is at once:
    they may have made room for messages. *made* is the first try, if its outcome is known; *first* is its call, if that
    was only prepared.
    """
    part = request if request.count <= MAX_PER_CALL else replace(request, count=MAX_PER_CALL)
    calls = 0
    while True:
        attempt, reply, acked = yield from _answered_call(state, part, block, until, outstanding, acks, made, first)
        acks = made = first = None
        outstanding.holder = ""
        found = read_reply(state, attempt, reply)
        # With rows in hand the queue is looked up by the next call: a failure here would lose them.
        if found.moved and not found.rows:
            yield from reopen(state, until)
        # After a jump the next read reports it; without the ack there may be room now that the read has not seen.
        if found.jumped or not (acked or found.rows):
            continue
        if found.rows or not found.more:
            return found
        calls += 1
        if calls >= most or state.clock.monotonic() >= until:
            return ReadReply(
                [], wait_ms=0, more=True, moved=found.moved
            )  # other readers are always faster, or another program writes to the keys


def _answered_call(
    state: QueueState,
    request: ReadRequest,
    block: float,
    until: float,
    outstanding: Outstanding,
    acks: Acks | None,
    made: Look | None,
    first: ReadCall | None,
) -> Op[tuple[ReadCall, Any, bool]]:
    """Return a read call, its reply, and whether the *acks*, if any, were done before it.

    If a reply is lost, its leases are given back before the next try. Each try is a new call with a new holder and a
    new reading of the clock. So if giving back the leases of one try happens late, it does not end the leases of the
    next try.
    """
    tries = 0
    while True:
        known, made = made, None
        attempt = known.attempt if known else first
        attempt = attempt or read_call(state, request, block, outstanding, declare=ALL_DECLARED)
        attempt.call.until, first = until, None
        try:
            if acks is None:
                return attempt, (known.reply() if known else (yield from with_rider(state, attempt.call))), True
            # Acks go out with the first try only; `ack_and_read` tries them again by itself.
            taken, acks = acks, None
            reply, acked = yield from ack_and_read(state, taken, attempt, until, outstanding, known and known.outcome)
            if not isinstance(reply, (Refused, Unanswered)):
                return attempt, reply, acked
            # It has only to be sent again, in another form or to another node: that is no failed try, and waits for
            # nothing.
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
        # Messages that this try was granted go back before the next one: they would come again only when their leases
        # end.
        if sent:
            yield from recover_all(state, outstanding, until)
        if state.clock.monotonic() >= until:
            give_up(tries, last, maybe_done=False, looks=KEPT_NOTHING)
        yield Sleep(pause_after(tries))
