"""Read the replies of the scripts. No other module knows the format of a reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from shardq.codec import decode_headers
from shardq.errors import CodecError
from shardq.model import DeadLetter, Event, JournalPage, QueueStats, Received, Written
from shardq.model.written import Existing
from shardq.protocol.journal import decode
from shardq.protocol.lease import lease_token

Row = Sequence[Any]
_SHARD = re.compile(r"\d{1,4}(?:,\d{1,4})*", re.ASCII)
_EXTRA = ((b"m",), (b"h",), (b"m", b"h"))  # names of the fields that an entry may have beside
_KEY = (b"k", b"K")  # the first field of an entry that shardq wrote; K if it counts in the window
_COUNTS = [each.name for each in fields(QueueStats) if each.default == 0]  # the state has most of them by their names


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Return a flat list of fields and values as a dict of text."""
    return {flat[i].decode(): flat[i + 1].decode(errors="replace") for i in range(0, len(flat), 2)}


def text_or_bytes(raw: bytes) -> str | bytes:
    """Return a shard key as text if it is UTF-8, else as bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def created_ms(queue_id: str) -> int:
    """Return when the queue with this id was made, in ms of the server's clock. Its id begins with that."""
    return int(queue_id.partition("-")[0])


class StoredAssignment(NamedTuple):
    """The stored assignment as a client knows it: the shards of named shard keys (as bytes).

    `since` is the epoch of its last change, '' if it never changed. Any two shards share at most `max_overlap` of their
    `width` streams; both are 0 without shards. `damaged` counts entries that are not
    shards, because another program wrote them.
    """

    since: str = ""
    max_overlap: int = 0
    width: int = 0
    by_key: Mapping[bytes, tuple[int, ...]] = MappingProxyType({})
    damaged: int = 0


NOTHING_ASSIGNED = StoredAssignment()


def stored_assignment(reply: Sequence[Any]) -> StoredAssignment:
    """Read the reply of `assignment`. It has a bound, the reach, that every stream of a shard is below.

    A shard with a higher stream is left out, since that stream may not exist and messages in it would be lost.
    """
    since, reach, flat = reply[0].decode(), int(reply[1]), reply[2]
    texts = dict(zip(flat[::2], flat[1::2], strict=True))
    max_overlap, _, width = texts.pop(b"", b"").decode(errors="replace").partition("|")
    found = {key: shard for key, raw in texts.items() if (shard := _shard(raw, reach))}
    return StoredAssignment(since, _number_or_zero(max_overlap), _number_or_zero(width), found, len(texts) - len(found))


def _shard(raw: bytes, reach: int) -> tuple[int, ...]:
    text = raw.decode(errors="replace")
    shard = tuple(map(int, text.split(","))) if _SHARD.fullmatch(text) else ()
    return shard if len(set(shard)) == len(shard) and all(stream < reach for stream in shard) else ()


def stored_ids(raw: bytes, keys: Sequence[str | bytes] = ()) -> list[Written]:
    """Return the ids in a reply of `write`. It has only the place of a new message, and the id of one that existed.

    *keys* are the shard keys of the messages.
    """
    ms, count, words = raw.decode().split("|")
    number = int(count)
    ids: list[Written] = []
    for at, word in enumerate(words.split(",")):
        if word == "o":
            number += 1
            ids.append(Written(f"{ms}-{number}-o.{quote(keys[at], safe='')}"))
        elif "-" in word:
            ids.append(Existing(word))
        else:
            number += 1
            ids.append(Written(f"{ms}-{number}-{word}"))
    return ids


def attributes(raw: bytes) -> dict[str, str]:
    """Return a message's attributes: x = deadline ms, t = due ms, c = deliveries before a redrive."""
    return {word[0]: word[1:] for word in raw.decode(errors="replace").split(" ") if word}


def headers_of(raw: bytes) -> Mapping[str, str]:
    """Return the headers; none if another program wrote them badly, since a bad message must not stop a reader."""
    try:
        return decode_headers(raw)
    except CodecError:
        return {}


def deliveries(reply: Sequence[Any], holder: str, deadline: float) -> list[Received]:
    """Return the messages in a reply of `read`, in the order in which they must be handled."""
    from shardq.protocol.bodies import received

    now_ms, (new, again, mark) = int(reply[1]), reply[5:8]
    mark, found = mark.decode(), []
    for at in range(0, len(new), 2):
        place = str(new[at]) if isinstance(new[at], int) else new[at].decode()
        for entry, flat in new[at + 1]:
            found.append(_of_stream(place, entry.decode(), flat, holder, now_ms, deadline, mark))
    return found + [received(row, holder, now_ms, deadline) for row in again]


def _of_stream(place: str, entry: str, flat: Row, holder: str, now_ms: int, deadline: float, mark: str) -> Received:
    ms, known = int(entry.partition("-")[0]), place != "l" and is_ours(flat)
    marks = mark if known and flat[0] == b"K" else "-"
    token = lease_token(place, entry, 1, holder, marks, flat[1] if known else b"")
    stream = int(place) if place.isdigit() else None
    if len(flat) == 4 and known:  # the common case
        key, tag = text_or_bytes(flat[1]), flat[2].decode(errors="replace")
        delay = max(0, now_ms - ms) / 1000
        return Received(f"{entry}-{place}", key, 1, deadline, flat[3], tag, {}, "", stream, delay, token, None)
    body = body_of(flat, foreign=not known)
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
    )


class Body(NamedTuple):
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


def body_of(flat: Row, *, foreign: bool) -> Body:
    """Read an entry's fields: `k`, the payload under its tag, then `m` (attributes) and `h` (headers) if present.

    A letter of what another program wrote has its fields behind these, and the tag `l`.
    """
    is_kept = len(flat) >= 4 and flat[0] in _KEY and flat[2] == b"l"
    if foreign or not (is_kept or is_ours(flat)):  # another program wrote it: deliver its fields
        return Body("", "l", b"", {}, {}, _fields(flat))
    key, tag, at = text_or_bytes(flat[1]), flat[2].decode(errors="replace"), 4
    extra: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    if len(flat) > at + 1 and flat[at] == b"m":
        extra, at = attributes(flat[at + 1]), at + 2
    if tag == "l":
        return Body(key, tag, b"", extra, {}, _fields(flat[at:]))
    if len(flat) > at + 1 and flat[at] == b"h":
        headers = headers_of(flat[at + 1])
    return Body(key, tag, flat[3], extra, headers, None)


def number_of(extra: Mapping[str, str], name: str) -> int:
    """Return an attribute that is a number; 0 if it is missing or damaged."""
    return _number_or_zero(extra.get(name, "")) if extra else 0


def _number_or_zero(text: str) -> int:
    """Return a whole number of up to 18 digits; 0 for any other text."""
    return int(text) if len(text) <= 18 and text.isdecimal() else 0


def _fields(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {flat[i].decode(errors="replace"): flat[i + 1] for i in range(0, len(flat), 2)}


def weights_in(raw: bytes) -> dict[str | bytes, int]:
    """Return the weights of shard keys. *raw* has "weight:length:key" for each, joined."""
    found = {}
    while raw:
        weight, length, rest = raw.split(b":", 2)
        found[text_or_bytes(rest[: int(length)])] = int(weight)
        raw = rest[int(length) :]
    return found


def dead_letter(row: Row) -> DeadLetter:
    """Read one row of `dead`: {entry id, {i, r, c, e, and the fields of the message}}.

    An entry that another program wrote becomes a dead letter with its `fields`.
    """
    entry_id, flat = row[0].decode(), row[1]
    if len(flat) < 8 or flat[0] != b"i":
        flat = (b"i", row[0], b"r", b"", b"c", b"0", b"e", b"", *flat)
    message_id, body = flat[1].decode(errors="replace"), body_of(flat[8:], foreign=False)
    return DeadLetter(
        entry_id=entry_id,
        message_id=message_id,
        shard_key=body.shard_key,
        reason=flat[3].decode(errors="replace"),
        count=_number_or_zero(flat[5].decode(errors="replace")),
        last_error=flat[7].decode(errors="replace"),
        written_at=_number_or_zero(message_id.partition("-")[0]) / 1000,
        died_at=int(entry_id.partition("-")[0]) / 1000,
        body=body.payload,
        tag=body.tag,
        headers=body.headers,
        fields=body.fields,
    )


def journal_page(reply: Sequence[Any], after: int, count: int) -> JournalPage:
    """Read the reply of `journal`: up to *count* events after position *after*."""
    queue_id, latest, more = reply[0].decode(), int(reply[1]), bool(reply[2])
    # The events of an earlier queue of this name have lower numbers. They went with it, so none of them is missing.
    start = min(max(after, created_ms(queue_id) * 1000), latest)
    columns = decode(reply[3], start)
    rows = zip(
        columns.number, columns.time_ms, columns.kind, columns.message_id, columns.shard_key, columns.stream,
        columns.count, columns.due_ms, columns.client, strict=True,
    )  # fmt: skip
    events = [_event(*row) for row in islice(rows, count)]
    position = latest
    if more or len(events) < len(columns.number):
        position = events[-1].number if events else columns.position
    # Events that a failover has undone cannot be counted: they count as one.
    return JournalPage(events, position, latest, position - start - len(events) + (after > latest), queue_id)


def _event(
    number: int, ms: int, kind: str, message_id: str, key: bytes | None, stream: int | None, count: int,
    due: int | None, client: str,
) -> Event:  # fmt: skip
    shard_key = None if key is None else text_or_bytes(key)
    seconds = None if due is None else due / 1000
    return Event(number, ms / 1000, kind, message_id, shard_key, stream, count, seconds, client)


def stats(queue: str, reply: Sequence[Any]) -> QueueStats:
    """Read the reply of `stats`; all numbers are zero if there is no such queue."""
    now_ms = int(reply[0])
    if len(reply) == 1:
        return QueueStats(queue, now_ms / 1000, 0, 0, 0, 0, None, ())
    _, backlog, in_flight, delayed, dead, oldest, streams, legacy, meta, *more = reply
    held_back, limited, runnable, acked, tenants_waiting = map(int, more)
    known = pairs(meta)
    return QueueStats(
        queue=queue,
        time=now_ms / 1000,
        backlog=int(backlog),
        in_flight=int(in_flight),
        delayed=int(delayed),
        dead=int(dead),
        oldest_age=None if int(oldest) < 0 else max(0, now_ms - int(oldest)) / 1000,
        streams=tuple(int(count) for count in streams),
        written=int(known["n"]),
        legacy=int(legacy),
        id=known["id"],
        held_back=held_back,
        limited=limited,
        runnable=runnable,
        tenants_waiting=tenants_waiting,
        acked=acked,
        **{name: int(known[name]) for name in _COUNTS if name in known},
    )


def entries_of(answer: Any) -> list[Any]:
    """Return the entries that XREAD or XREADGROUP answered with, of its only stream; [] if none came."""
    if not answer:
        return []
    streams: Iterable[Any] = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
    return [entry for entries in streams for entry in entries]
