"""Reading what the scripts return: the only place that knows the shape of a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardq.codec import decode_headers
from shardq.errors import CodecError
from shardq.lease import token_of
from shardq.model import DeadLetter, QueueStats, Received

Row = Sequence[Any]
_OURS = [b"k", b"m", b"h", b"p"]


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """A flat field-value list as a dict of text."""
    return {flat[i].decode(): flat[i + 1].decode(errors="replace") for i in range(0, len(flat), 2)}


def text_or_bytes(raw: bytes) -> str | bytes:
    """A shard key as it was most likely given: text when it is UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def stored_ids(raw: bytes) -> list[str]:
    """The ids of what `write` stored: of a new message it tells the place alone, of one stored before the id."""
    ms, count, words = raw.decode().split("|")
    number, ids = int(count), []
    for word in words.split(","):
        if "-" in word:
            ids.append(word)
        else:
            number += 1
            ids.append(f"{ms}-{number}-{word}")
    return ids


def attributes(raw: bytes) -> tuple[str, dict[str, str]]:
    """A message's tag and attributes: x = deadline ms, t = due ms, i = original id, c = deliveries before a redrive."""
    if len(raw) == 1:
        return raw.decode(errors="replace"), {}
    tag, *rest = raw.decode(errors="replace").split(" ")
    return tag, {word[0]: word[1:] for word in rest if word}


def headers_of(raw: bytes) -> Mapping[str, str]:
    """Headers, or none when something else wrote rubbish there: a reader must not stop at poison."""
    try:
        return decode_headers(raw)
    except CodecError:
        return {}


def received(row: Row, holder: str, now_ms: int, deadline: float) -> Received:
    """One row of `read`: {"place:id:count", last error, fields}."""
    head, flat = row[0].decode(), row[2]
    place, entry, count = head.split(":")
    foreign = place == "l" or flat[0:8:2] != _OURS  # written by something else: hand it out as its fields
    if foreign:
        tag, raw_headers, body = "l", b"", b""
        extra: dict[str, str] = {}
        shard_key: str | bytes = ""
    else:
        shard_key, raw_headers, body = text_or_bytes(flat[1]), flat[5], flat[7]
        tag, extra = attributes(flat[3])
    written = _number(extra, "t") or int(entry.partition("-")[0])
    plain = flat if foreign else flat[8:]
    return Received(
        message_id=extra.get("i") or f"{entry}-{place}",
        shard_key=shard_key,
        count=int(count) + _number(extra, "c"),
        deadline=deadline,
        body=body,
        tag=tag,
        headers=headers_of(raw_headers) if raw_headers else {},
        last_error=row[1].decode(errors="replace") if row[1] else "",
        stream=int(place) if place.isdigit() else None,
        pickup_delay=max(0, now_ms - written) / 1000,
        token=token_of(head, holder),
        origin=extra.get("i", ""),
        fields=_fields(plain) if tag == "l" else None,
    )


def _number(extra: Mapping[str, str], name: str) -> int:
    """An attribute that is a number; 0 without it, or when something else wrote rubbish there."""
    text = extra.get(name, "")[:18] if extra else ""
    return int(text) if text.isdecimal() else 0


def _fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {flat[i].decode(errors="replace"): flat[i + 1] for i in range(0, len(flat), 2)}


def dead_letter(row: Row) -> DeadLetter:
    """One row of `dead`: {entry id, {i, r, c, e, k, m, h, p, ...}}."""
    entry_id, flat = row[0].decode(), row[1]
    found = {flat[i]: flat[i + 1] for i in range(0, 16, 2)}
    message_id = found[b"i"].decode()
    tag, _ = attributes(found[b"m"])
    return DeadLetter(
        entry_id=entry_id,
        message_id=message_id,
        shard_key=text_or_bytes(found[b"k"]),
        reason=found[b"r"].decode(errors="replace"),
        count=int(found[b"c"]),
        last_error=found[b"e"].decode(errors="replace"),
        written_at=int(message_id.partition("-")[0]) / 1000,
        died_at=int(entry_id.partition("-")[0]) / 1000,
        body=found[b"p"],
        tag=tag,
        headers=headers_of(found[b"h"]),
    )


def stats(queue: str, reply: Sequence[Any]) -> QueueStats:
    """The reply of `stats`; all zero when there is no such queue."""
    now_ms = int(reply[0])
    if len(reply) == 1:
        return QueueStats(queue, now_ms / 1000, 0, 0, 0, 0, None, ())
    _, backlog, in_flight, delayed, dead, oldest, streams, legacy, meta = reply
    known = pairs(meta)
    counters = ("wanted", "acked", "expired", "cancelled", "purged", "buried", "vanished")
    return QueueStats(
        queue=queue,
        time=now_ms / 1000,
        backlog=int(backlog),
        in_flight=int(in_flight),
        delayed=int(delayed),
        dead=int(dead),
        oldest_age=None if int(oldest) < 0 else max(0, now_ms - int(oldest)) / 1000,
        streams=tuple(int(count) for count in streams),
        written=int(known["n"]) - int(known.get("redriven", 0)),
        legacy=int(legacy),
        **{name: int(known.get(name, 0)) for name in counters},
    )
