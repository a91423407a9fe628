"""cancel: remove a message that waits, or tell the holder of one in flight that it is not wanted any more."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from shardq.errors import MessageNotFound
from shardq.model import MessageId
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.retry import retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op


def located(state: QueueState, place: str) -> tuple[str, bytes, tuple[str, ...]]:
    """Return what the last part of a message id says: the origin, the shard key in it, and the stream to look into."""
    origin, _, quoted = place.partition(".")
    return origin, unquote_to_bytes(quoted), state.declared([origin]) if origin.isdigit() or origin == "l" else ()


Cancelled: TypeAlias = Literal["removed", "in flight", "dead"]


def cancel(state: QueueState, message_id: str, timeout: float | None = None) -> Op[Cancelled]:
    """Remove a waiting or delayed message, or mark one in flight as cancelled. MessageNotFound if it is neither."""
    entry, place = MessageId.parse(message_id, MessageNotFound)
    until = state.until(timeout)
    yield from open_queue(state, until)
    origin, key, stream = located(state, place)
    call = Call.on(state.keys, "cancel", (message_id, origin, entry, state.client, key), rest=stream)
    maybe_done = False

    def make(repeated: bool) -> Call:
        nonlocal maybe_done
        maybe_done = repeated
        return call

    reply: Any = yield from retry_until(make, until, state.clock)
    if reply == b"in flight":
        return "in flight"
    if reply == b"dead":
        return "dead"
    # After a try without an answer nothing may be found since that try removed it.
    if reply == b"removed" or maybe_done:
        return "removed"
    raise MessageNotFound(f"message {message_id} is not waiting, delayed or in flight: it was settled, or never was")
