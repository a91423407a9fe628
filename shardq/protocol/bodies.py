"""Messages outside of streams, as the engine stores them (lua/messages.lua), and their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from shardq.model import Received
from shardq.protocol.lease import lease_token
from shardq.protocol.replies import headers_of, number_of, text_or_bytes

FROM_OVERFLOW = "o"
"""The last part of the id of a message that waited in an overflow: its shard key comes behind it."""


FROM_LEGACY = "l"
"""The last part of the id of a message that came from the legacy stream. A zero is in front of its entry id."""


def message_id(entry: str, origin: str, shard_key: str | bytes) -> str:
    """Return the id of a message: entry id, origin, and if nothing else leads to it, its shard key."""
    if origin == FROM_LEGACY:
        return f"{entry[1:]}-{origin}"
    if origin != FROM_OVERFLOW:
        return f"{entry}-{origin}"
    return f"{entry}-{FROM_OVERFLOW}.{quote(shard_key, safe='')}"


class StoredBody(NamedTuple):
    """A message outside of a stream."""

    origin: str
    key: bytes
    attributes: dict[str, str]
    unique_key: bytes
    tag: str
    headers: bytes
    payload: bytes


def body_of(raw: bytes) -> StoredBody:
    """Read a body: "origin:", then sized shard key, attributes and unique key, the tag, sized headers, the payload."""
    origin, _, rest = raw.partition(b":")
    key, rest = _sized(rest)
    attributes, rest = _sized(rest)
    unique_key, rest = _sized(rest)
    tag = rest[:1].decode(errors="replace")
    headers, payload = _sized(rest[1:])
    words = attributes.decode(errors="replace").split(" ")
    return StoredBody(origin.decode(), key, {w[0]: w[1:] for w in words if w}, unique_key, tag, headers, payload)


def fields_of(payload: bytes) -> dict[str, bytes]:
    """Return the fields of an entry that another program wrote: each name and value has its size before it."""
    values = _foreign_fields(payload)
    return {values[at].decode(errors="replace"): values[at + 1] for at in range(0, len(values) - 1, 2)}


def _foreign_fields(payload: bytes) -> list[bytes]:
    values = []
    while payload:
        value, payload = _sized(payload)
        values.append(value)
    return values


_PLAIN = b"0:0:"
"""What a body has behind its shard key where there are no attributes and no unique key."""


def entry_of(raw: bytes) -> tuple[str, Sequence[bytes]]:
    """Return the origin of a body, and the fields that the message has as an entry of a stream."""
    origin, _, rest = raw.partition(b":")
    key, tail = _sized(rest)
    return origin.decode(), fields_of_tail(key, tail)


def fields_of_tail(key: bytes, tail: bytes) -> Sequence[bytes]:
    """Return these fields, given the shard key, and what the body has behind it."""
    if tail.startswith(_PLAIN) and tail[5:7] == b"0:" and tail[4:5] != b"l":  # as most are
        return [b"k", key, tail[4:5], tail[7:]]
    attributes, rest = _sized(tail)
    _, rest = _sized(rest)
    tag = rest[:1]
    headers, payload = _sized(rest[1:])
    if tag == b"l":
        return _foreign_fields(payload)
    found = [b"k", key, tag, payload]
    if attributes:
        found += (b"m", attributes)
    return [*found, b"h", headers] if headers else found


def records_of(block: bytes, offset: int = 0) -> Iterator[tuple[bytes, bytes | None]]:
    """Return the messages in a block of an overflow: the entry id, and what the body has behind the shard key.

    None is in its place where the body lies by itself. Parts that begin before the *offset* are left out.
    """
    at, end = 0, len(block)
    while at < end:
        begin, colon = at, block.index(b":", at)
        at = colon + 1 + int(block[at:colon])
        bar = block.find(b"|", colon, at)
        if begin >= offset:
            yield (block[colon + 1 : at - 1], None) if bar < 0 else (block[colon + 1 : bar], block[bar + 1 : at])


def _sized(raw: bytes) -> tuple[bytes, bytes]:
    size, _, rest = raw.partition(b":")
    return rest[: int(size)], rest[int(size) :]


def received(row: Sequence[Any], holder: str, now_ms: int, deadline: float) -> Received:
    """Return the message in a row of a read: {"place:id:count:marks", error, body, deliverable since in ms}."""
    place, entry, count, marks = row[0].decode().split(":")
    body, since = body_of(row[2]), int(row[3])
    key = text_or_bytes(body.key)
    foreign = body.tag == "l"
    return Received(
        message_id=message_id(entry, body.origin, key),
        shard_key="" if foreign else key,
        count=int(count) + number_of(body.attributes, "c"),
        deadline=deadline,
        body=b"" if foreign else body.payload,
        tag=body.tag,
        headers=headers_of(body.headers) if body.headers else {},
        last_error=row[1].decode(errors="replace"),
        stream=int(body.origin) if body.origin.isdigit() else None,
        pickup_delay=max(0, now_ms - since) / 1000,
        token=lease_token(place, entry, int(count), holder, marks, body.key),
        fields=fields_of(body.payload) if foreign else None,
    )
