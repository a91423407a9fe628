"""Messages that a read was granted and nobody took go back: leases that nobody holds would end only by time."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.model import Received
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.read.waiting import Outstanding
from shardq.ops.settle.command import settle_call
from shardq.protocol.lease import token_argument

RECOVER_PAGE = 1000
"""Leases that one call of the verb `lost` looks at."""
MAX_RECOVERED = 16_000
"""Messages that are, at most: the server grants no more in one ms, so no more have the same end."""


MAX_GIVEN_BACK = 100
"""Messages that one call of the verb `settle` gives back by their lease tokens."""


def recover(state: QueueState, outstanding: Outstanding, until: float) -> Op[None]:
    """Give back the leases of a read whose reply was lost."""
    where, page, holder = "", RECOVER_PAGE, token_argument(outstanding.holder)
    while True:
        lost = Call.on(state.keys, "lost", (holder, outstanding.since, outstanding.visibility, page, where))
        # Its first call also makes the read void, should it still be on its way (`verbs.lost`).
        reply, tokens = yield from retry_until(always(lost), until, state.clock)
        # No streams are declared: messages that nobody saw stay where they lie (`end_returned` in lua/settle.lua).
        if tokens:
            call = settle_call(state, "g", tokens)
            yield from retry_until(always(call), until, state.clock)
        if not reply:
            return
        # Pages grow while all leases on them are of others with the same end, or this would never get past them.
        page = min(page * 2, MAX_RECOVERED) if reply.decode() == where else RECOVER_PAGE
        where = reply.decode()


def recover_all(state: QueueState, outstanding: Outstanding, until: float) -> Op[None]:
    """Do as `recover`, for a caller that learns nothing else of the read: OutcomeUnknown if that fails."""
    outcome = yield from outcome_of(recover(state, outstanding, until))
    if isinstance(outcome, ShardqError):
        raise OutcomeUnknown(
            "a read got no answer and may have happened: if it was granted messages, they come again when their leases "
            f"end, since giving them back failed by {type(outcome).__name__}"
        ) from outcome


def give_back(state: QueueState, rows: Sequence[Received], until: float) -> Op[None]:
    """Give back messages that no reader took, without counting their delivery.

    No handler may have started on them, and none may have been settled.
    """
    for start in range(0, len(rows), MAX_GIVEN_BACK):
        tokens = [token_argument(row.token) for row in rows[start : start + MAX_GIVEN_BACK]]
        call = settle_call(state, "g", tokens)
        yield from retry_until(always(call), until, state.clock)


def give_back_all(state: QueueState, outstanding: Outstanding, until: float) -> Op[None]:
    """Give back everything that a cancelled read was granted: the rows that came, and those of a lost reply."""
    yield from give_back(state, outstanding.rows, until)
    if outstanding.holder:
        yield from recover(state, outstanding, until)


def unread(state: QueueState, rows: Sequence[Received], timeout: float | None = None) -> Op[None]:
    """Do as `give_back`, within *timeout* seconds. For a worker that has read more than it can start."""
    yield from give_back(state, rows, state.until(timeout))
