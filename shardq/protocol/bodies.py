"""Messages as the engine stores them: as entries of streams, and outside (lua/messages.lua). Also what a read returns.

`deliveries` begins with the reply of a read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from shardq.codec import decode_headers
from shardq.errors import CodecError
from shardq.model import Received

Row = Sequence[Any]
_EXTRA = ((b"m",), (b"h",), (b"m", b"h"))  # names of the fields that an entry may have beside
_ORIGIN = re.compile(rb"(\w+)[:=]")
_RECORD = re.compile(rb"(\d+-\d+)([|=@])")  # the entry id, and where the body lies: lua/waiting.lua
_KEY = (b"k", b"K")  # the first field of an entry that shardq wrote; K if it counts in the window

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
    return f"{entry}-{FROM_OVERFLOW}.{quoted(shard_key)}"


@lru_cache(maxsize=1024)  # a flood has the same key in all its ids
def quoted(shard_key: str | bytes) -> str:
    """Return a shard key as it stands in an id."""
    return quote(shard_key, safe="")


class StoredBody(NamedTuple):
    """A message outside of a stream."""

    origin: str
    key: bytes
    attributes: dict[str, str]
    unique_key: bytes
    tag: str
    headers: bytes
    payload: bytes


def body_of(raw: bytes, apart: bytes | None = None) -> StoredBody:
    """Read a body: "origin:", then sized shard key, attributes and unique key, the tag, sized headers, the payload.

    A payload that lies by itself is *apart*: then "=" stands behind the origin, and the body ends with the headers.
    """
    origin, rest = _origin(raw)
    key, rest = _sized(rest)
    extra, rest = _sized(rest)
    unique_key, rest = _sized(rest)
    tag = rest[:1].decode(errors="replace")
    headers, payload = _sized(rest[1:])
    payload = payload if apart is None else apart
    return StoredBody(origin.decode(), key, attributes(extra), unique_key, tag, headers, payload)


def fields_of(payload: bytes) -> dict[str, bytes]:
    """Return the fields of an entry that another program wrote: each name and value has its size before it."""
    return _fields(_foreign_fields(payload))


def _foreign_fields(payload: bytes) -> list[bytes]:
    values = []
    while payload:
        value, payload = _sized(payload)
        values.append(value)
    return values


_PLAIN = b"0:0:"
"""The part of a body behind its shard key where there are no attributes and no unique key."""


def entry_of(raw: bytes, apart: bytes | None = None) -> tuple[str, Sequence[bytes]]:
    """Return the origin of a body, and the fields that the message has as an entry of a stream (see `body_of`)."""
    origin, rest = _origin(raw)
    key, tail = _sized(rest)
    return origin.decode(), fields_of_tail(key, tail if apart is None else tail + apart)


def field_of_payload(entry: bytes) -> bytes:
    """Return the field of `bodies` that a payload has which lies by itself."""
    return b"p" + entry


def _origin(raw: bytes) -> tuple[bytes, bytes]:
    found = _ORIGIN.match(raw)
    return (found[1], raw[found.end() :]) if found else (b"", b"")


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


class BodyRecord(NamedTuple):
    """A message in a block of an overflow. `tail` is what its body has behind the shard key.

    It is None where the body lies by itself. Where only the payload does, it `is_apart`.
    """

    entry: bytes
    tail: bytes | None
    is_apart: bool = False


def records_of(block: bytes, offset: int = 0) -> Iterator[BodyRecord]:
    """Return the messages in a block of an overflow. Parts that begin before the *offset* are left out."""
    at, end = 0, len(block)
    while at < end:
        begin, colon = at, block.index(b":", at)
        at = colon + 1 + int(block[at:colon])
        if begin >= offset and (found := _RECORD.match(block, colon + 1, at)):
            tail = None if found[2] == b"@" else block[found.end() : at]
            yield BodyRecord(found[1], tail, found[2] == b"=")


def _sized(raw: bytes) -> tuple[bytes, bytes]:
    size, _, rest = raw.partition(b":")
    return rest[: int(size)], rest[int(size) :]


def text_or_bytes(raw: bytes) -> str | bytes:
    """Return a shard key as text if it is UTF-8, else as bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def attributes(raw: bytes) -> dict[str, str]:
    """Return a message's attributes: x = deadline ms, t = due ms, c = deliveries before a redrive."""
    return {word[0]: word[1:] for word in raw.decode(errors="replace").split(" ") if word}


def headers_of(raw: bytes) -> Mapping[str, str]:
    """Return the headers; none if another program wrote them badly, since a bad message must not stop a reader."""
    try:
        return decode_headers(raw)
    except CodecError:
        return {}


def number_of(extra: Mapping[str, str], name: str) -> int:
    """Return an attribute that is a number; 0 if it is missing or damaged."""
    return number_or_zero(extra.get(name, "")) if extra else 0


def number_or_zero(text: str) -> int:
    """Return a whole number of up to 18 digits; 0 for any other text."""
    return int(text) if len(text) <= 18 and text.isdecimal() else 0


class EntryBody(NamedTuple):
    """The content of an entry. `fields` has all fields of an entry that another program wrote; None for others."""

    shard_key: str | bytes
    tag: str
    payload: bytes
    attributes: Mapping[str, str]
    headers: Mapping[str, str]
    fields: dict[str, bytes] | None


def is_ours(flat: Row) -> bool:
    """Return whether an entry of a stream is a message, as lua/messages.lua says, and no other program's."""
    size = len(flat)
    if size < 4 or flat[0] not in _KEY or flat[2] == b"l" or len(flat[2]) != 1:
        return False
    return size == 4 or tuple(flat[4::2]) in _EXTRA


def entry_body(flat: Row, *, foreign: bool) -> EntryBody:
    """Read an entry's fields: `k`, the payload under its tag, then `m` (attributes) and `h` (headers) if present.

    A letter of what another program wrote has its fields behind these, and the tag `l`.
    """
    is_kept = len(flat) >= 4 and flat[0] in _KEY and flat[2] == b"l"
    if foreign or not (is_kept or is_ours(flat)):  # another program wrote it: deliver its fields
        return EntryBody("", "l", b"", {}, {}, _fields(flat))
    key, tag, at = text_or_bytes(flat[1]), flat[2].decode(errors="replace"), 4
    extra: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    if len(flat) > at + 1 and flat[at] == b"m":
        extra, at = attributes(flat[at + 1]), at + 2
    if tag == "l":
        return EntryBody(key, tag, b"", extra, {}, _fields(flat[at:]))
    if len(flat) > at + 1 and flat[at] == b"h":
        headers = headers_of(flat[at + 1])
    return EntryBody(key, tag, flat[3], extra, headers, None)


def _fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {flat[i].decode(errors="replace"): flat[i + 1] for i in range(0, len(flat) - 1, 2)}


def lease_token(place: str, entry: str, count: int, holder: str, marks: str, shard_key: bytes) -> str:
    """Return the lease token: the member that `read` puts into the index of leases.

    The *marks* hold the rest that the end of the lease needs to know of the message (lua/leases.lua).

    >>> lease_token("d", "1700000000000-7", 1, "nonce", "f1700000000000", b"acct-7")
    'd:1700000000000-7:1:nonce:f1700000000000:acct-7'
    """
    return f"{place}:{entry}:{count}:{holder}:{marks}:{shard_key.decode(errors='surrogateescape')}"


def is_charged(marks: str) -> bool:
    """Return whether the *marks* of a lease say that the time that the work on the message takes counts.

    >>> is_charged("ef1700000000000"), is_charged("-")
    (True, False)
    """
    return marks[-1:].isdigit()


def deliveries(reply: Sequence[Any], holder: str, deadline: float, is_timed: bool = False) -> list[Received]:
    """Return the messages in a reply of `read`, in the order in which they must be handled.

    With *is_timed* the time that the work on them takes is reported, also for those that are not charged.
    """
    now_ms, (new, again, mark) = int(reply[1]), reply[5:8]
    mark, found = mark.decode(), []
    charged = is_charged(mark)
    for at in range(0, len(new), 2):
        place = str(new[at]) if isinstance(new[at], int) else new[at].decode()
        for entry, flat in new[at + 1]:
            found.append(_of_stream(place, entry.decode(), flat, holder, now_ms, deadline, mark, charged, is_timed))
    return found + [received(row, holder, now_ms, deadline, is_timed) for row in again] if again else found


def _of_stream(
    place: str,
    entry: str,
    flat: Row,
    holder: str,
    now_ms: int,
    deadline: float,
    mark: str,
    charged: bool,
    is_timed: bool,
) -> Received:
    ms, known = int(entry.partition("-")[0]), place != "l" and is_ours(flat)
    has_marks = known and flat[0] == b"K"
    marks = mark if has_marks else "-"
    timed = is_timed or (charged and has_marks)
    token = lease_token(place, entry, 1, holder, marks, flat[1] if known else b"")
    stream = int(place) if place.isdigit() else None
    if len(flat) == 4 and known:  # the common case
        key, tag = text_or_bytes(flat[1]), flat[2].decode(errors="replace")
        delay = max(0, now_ms - ms) / 1000
        return Received(
            f"{entry}-{place}", key, 1, deadline, flat[3], tag, {}, "", stream, delay, token, None, "", timed
        )
    body = entry_body(flat, foreign=not known)
    since = number_of(body.attributes, "t") or ms
    return Received(
        message_id=f"{entry}-{place}",
        shard_key=body.shard_key,
        count=1 + number_of(body.attributes, "c"),
        deadline=deadline,
        body=body.payload,
        tag=body.tag,
        headers=body.headers,
        last_error="",
        stream=stream,
        pickup_delay=max(0, now_ms - since) / 1000,
        token=token,
        fields=body.fields,
        timed=timed,
    )


def received(row: Sequence[Any], holder: str, now_ms: int, deadline: float, is_timed: bool = False) -> Received:
    """Return the message in a row of a read: see lua/read.lua."""
    place, entry, count, marks = row[0].decode().split(":")
    body, since = body_of(*row[2::2]), int(row[3])
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
        timed=is_timed or is_charged(marks),
    )
