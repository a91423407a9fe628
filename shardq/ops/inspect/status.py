"""Tell where one message is. It only reads."""

from __future__ import annotations

from typing import Any

from shardq.errors import MessageNotFound
from shardq.model import MessageId, MessageStatus
from shardq.ops.queue.opening import missing
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.settle.cancel import located
from shardq.protocol.standing import Whole, message_status, whole_of
from shardq.sharding import MAX_STREAMS


def status(state: QueueState, message_id: str, timeout: float | None = None) -> Op[MessageStatus]:
    """Return where a message is, and what it waits for. QueueMissing, or MessageNotFound for what cannot be an id."""
    return message_status(message_id, (yield from _reply(state, message_id, timeout)))


def whole_status(state: QueueState, message_id: str, timeout: float | None = None) -> Op[Whole]:
    """Do as `status`, and return the payload, and what is kept as the message's result or as a note, too."""
    return whole_of(message_id, (yield from _reply(state, message_id, timeout, "1")))


def _reply(state: QueueState, message_id: str, timeout: float | None, whole: str = "") -> Op[Any]:
    entry, place = MessageId.parse(message_id, MessageNotFound)
    until = state.until(timeout)
    if place == "l":
        yield from sight(state, until)  # to know the legacy stream
    # There is no stream of a higher number, so nothing is in it; and for a message in the store no stream matters.
    is_known = place == "l" or (place.isdigit() and int(place) < MAX_STREAMS)
    origin, key, stream = located(state, place if is_known or not place.isdigit() else "d")
    call = Call.on(state.keys, "status", (message_id, origin, entry, key, whole), rest=stream)
    reply: Any = yield from retry_until(always(call), until, state.clock)
    if len(reply) == 1:
        raise missing(state)
    return reply
