"""Tell where one message is. It only reads."""

from __future__ import annotations

from typing import Any

from shardq.model import MessageId, MessageStatus
from shardq.ops.opening import missing
from shardq.ops.retry import retry_until
from shardq.ops.sight import sight
from shardq.ops.state import QueueState
from shardq.ops.steps import Call, Op
from shardq.protocol.standing import message_status
from shardq.sharding import MAX_STREAMS


def status(state: QueueState, message_id: str, timeout: float | None = None) -> Op[MessageStatus]:
    """Return where a message is, and what it waits for. QueueMissing if there is no such queue."""
    entry, place = MessageId.parse(message_id)
    until, legacy = state.until(timeout), state.legacy
    if place == "l":
        legacy = (yield from sight(state, until)).view.config.legacy_stream or legacy
    # There is no stream of a higher number, and no message in it. The first one is as good to look in.
    number = place if place.isdigit() and int(place) < MAX_STREAMS else "0"
    body = legacy if place == "l" else state.declared([number])[0]
    call = Call.on(state.keys, "status", (message_id, place, entry), rest=(body,))
    reply: Any = yield from retry_until(lambda _: call, until, state.clock)
    if len(reply) == 1:
        raise missing(state.keys.name)
    return message_status(message_id, reply)
