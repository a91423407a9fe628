"""A streaming query's hold, written down in Redis, so that a query that is started again finds it.

The key of a hold is a hash: the number of a micro-batch, and a record of its leases. At most two micro-batches are in
it: one that is worked on, and one that is about to be. Other fields have what else is known of the query's batches.
"""

from __future__ import annotations

from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op

REMEMBERED_SECONDS = 86_400
"""Seconds after which Redis forgets a hold. A query that runs knows itself what it holds."""


def remember(state: QueueState, name: str, field: int | str, record: bytes | str, dropped: int | str = "") -> Op[None]:
    """Write down the record of a micro-batch, or another field. It takes the place of the field *dropped*, if any."""
    args = (field, record, REMEMBERED_SECONDS * 1000, dropped)
    call = Call.on(state.keys, "remember", args, rest=(state.keys.hold(name),))
    yield from retry_until(always(call), state.until(), state.clock)


def recall(state: QueueState, name: str, field: int | str) -> Op[bytes | None]:
    """Return the record of a micro-batch, or another field; None if there is none, or none any more."""
    record: bytes | None = yield from ask(state, "HGET", state.keys.hold(name), str(field))
    return record
