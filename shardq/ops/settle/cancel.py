"""cancel: remove a message that waits, or tell the holder of one in flight that it is not wanted any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from shardq.errors import MessageNotFound
from shardq.model import MessageId
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.who import NOBODY, Who


def located(state: QueueState, place: str) -> tuple[str, bytes, tuple[str, ...]]:
    """Return what the last part of a message id says: the origin, the shard key in it, and the stream to look into."""
    origin, _, quoted = place.partition(".")
    return origin, unquote_to_bytes(quoted), state.declared([origin]) if origin.isdigit() or origin == "l" else ()


Cancelled: TypeAlias = Literal["removed", "in flight", "dead"]
_FOUND: Final[Mapping[bytes, Cancelled]] = {b"removed": "removed", b"in flight": "in flight", b"dead": "dead"}


def cancel(state: QueueState, message_id: str, timeout: float | None = None, who: Who = NOBODY) -> Op[Cancelled]:
    """Remove a waiting or delayed message, or mark one in flight as cancelled. MessageNotFound if it is neither."""
    entry, place = MessageId.parse(message_id, MessageNotFound)
    until, said = state.until(timeout), who.said_by(state)
    yield from open_queue(state, until)
    origin, key, stream = located(state, place)

    def make(sequence: ProducerSequence) -> Call:
        args = (message_id, origin, entry, said, key, spelled(state, sequence, until))
        return Call.on(state.keys, "cancel", args, rest=stream)

    (_, was), _ = yield from numbered(state, make, until)
    found: Cancelled | None = _FOUND.get(was)
    if found is None:
        raise MessageNotFound(
            f"message {message_id} is not waiting, delayed or in flight: it was settled, or never was"
        )
    return found
