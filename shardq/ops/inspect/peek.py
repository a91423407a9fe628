"""Look at the messages of a queue, in the order in which they would be delivered, without a delivery. It only reads."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from typing import Final, get_args

import msgspec

from shardq.arguments import flag, one_of, text, whole
from shardq.errors import ConfigError
from shardq.model import PeekedMessage, PeekedPage, PeekState
from shardq.ops.inspect.page import MAX_COUNT, Point, WantedMessages
from shardq.ops.inspect.peek_letters import dead
from shardq.ops.inspect.peek_lists import Lister, delayed, held, in_flight, listed
from shardq.ops.inspect.peek_streams import in_streams, sources_of
from shardq.ops.queue.sight import Sight, sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.sharding import MAX_STREAMS, key_bytes

_LISTERS: Final[Mapping[PeekState, Lister]] = {"held_back": held, "delayed": delayed, "in_flight": in_flight}


def peek(
    state: QueueState,
    count: int,
    shard_key: str | bytes | None,
    stream: int | None,
    wanted_state: PeekState,
    *,
    payloads: bool,
    after: str | None,
    timeout: float | None,
) -> Op[PeekedPage]:
    """Return a page of up to *count* messages. QueueMissing if there is no such queue."""
    wanted = _checked(state.until(timeout), count, shard_key, stream, wanted_state, payloads)
    point = _point(after, wanted_state)
    seen = yield from sight(state, wanted.until)
    messages, cursor = yield from _page(state, seen, wanted, point)
    return PeekedPage(tuple(messages), None if cursor is None else _spelled(cursor), seen.time)


def _page(
    state: QueueState, seen: Sight, wanted: WantedMessages, point: Point
) -> Op[tuple[list[PeekedMessage], Point | None]]:
    if wanted.state == "dead":
        return (yield from dead(state, wanted, point))
    if wanted.state != "waiting":
        return (yield from listed(state, seen, wanted, point, _LISTERS[wanted.state]))
    messages: list[PeekedMessage] = []
    if point.kind == "waiting":
        tracks = point.tracks if point.is_begun else (yield from sources_of(state, seen, wanted))
        messages, left = yield from in_streams(state, wanted, tracks)
        if left:
            return messages, left
    # The page is full, and the streams have no more: the next one begins with messages that are held back.
    if len(messages) == wanted.count:
        return messages, Point("held_back")
    point = point if point.kind == "held_back" else Point("held_back")
    more, cursor = yield from listed(state, seen, wanted.less(len(messages)), point, held)
    return messages + more, cursor


def _checked(
    until: float, count: int, shard_key: str | bytes | None, stream: int | None, wanted_state: PeekState, payloads: bool
) -> WantedMessages:
    """Return what is wanted. ConfigError if it cannot be."""
    whole("count", count, 1, MAX_COUNT)
    one_of("state", wanted_state, get_args(PeekState))
    flag("payloads", payloads)
    if stream is not None:
        whole("stream", stream, 0, MAX_STREAMS - 1)
    return WantedMessages(
        until, count, wanted_state, b"" if shard_key is None else key_bytes(shard_key), stream, payloads
    )


def _point(after: str | None, wanted_state: PeekState) -> Point:
    """Return the point that a cursor stands for, or the start. ConfigError if it is none, or of another state."""
    if after is None:
        return Point(wanted_state)
    try:
        point = msgspec.msgpack.decode(urlsafe_b64decode(text("after", after)), type=Point)
    except (Error, ValueError, msgspec.MsgspecError):
        point = None
    kinds = (wanted_state, "held_back") if wanted_state == "waiting" else (wanted_state,)
    if point is None or point.kind not in kinds or not point.is_sound:
        raise ConfigError("after must be the cursor of another page of the same state")
    return point


def _spelled(point: Point) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(point)).decode()
