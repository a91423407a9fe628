"""Read the replies of the scripts. No other module knows the format of a reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from shardq.model import DeadLetter, Event, JournalPage, QueueStats, Written
from shardq.model.stats import COUNTS
from shardq.model.written import Existing
from shardq.protocol.bodies import Row, entry_body, number_or_zero, quoted, text_or_bytes
from shardq.protocol.failures import group_of
from shardq.protocol.journal import EventColumns, decode
from shardq.protocol.limits import pause_of

_SHARD = re.compile(r"\d{1,4}(?:,\d{1,4})*", re.ASCII)


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Return a flat list of fields and values as a dict of text."""
    return {flat[i].decode(): flat[i + 1].decode(errors="replace") for i in range(0, len(flat), 2)}


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
    return StoredAssignment(since, number_or_zero(max_overlap), number_or_zero(width), found, len(texts) - len(found))


def _shard(raw: bytes, reach: int) -> tuple[int, ...]:
    text = raw.decode(errors="replace")
    shard = tuple(map(int, text.split(","))) if _SHARD.fullmatch(text) else ()
    return shard if len(set(shard)) == len(shard) and all(stream < reach for stream in shard) else ()


def is_nothing(raw: bytes) -> bool:
    """Return whether a reply of `write` says that the call stored nothing, since it had no messages."""
    return raw.endswith(b"|")


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
            ids.append(Written(f"{ms}-{number}-o.{quoted(keys[at])}"))
        elif "-" in word:
            ids.append(Existing(word))
        else:
            number += 1
            ids.append(Written(f"{ms}-{number}-{word}"))
    return ids


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
    message_id, body = flat[1].decode(errors="replace"), entry_body(flat[8:], foreign=False)
    group = group_of(body.attributes.get("f", ""))
    return DeadLetter(
        entry_id=entry_id,
        message_id=message_id,
        shard_key=body.shard_key,
        reason=flat[3].decode(errors="replace"),
        count=number_or_zero(flat[5].decode(errors="replace")),
        last_error=flat[7].decode(errors="replace"),
        written_at=number_or_zero(message_id.partition("-")[0]) / 1000,
        died_at=int(entry_id.partition("-")[0]) / 1000,
        body=body.payload,
        tag=body.tag,
        headers=body.headers,
        fields=body.fields,
        error_type=group.error_type if group else "",
        failure_reason=group.reason if group else "",
    )


def journal_page(reply: Sequence[Any], after: int, count: int) -> JournalPage:
    """Read the reply of `journal`: up to *count* events after position *after*."""
    queue_id, latest = reply[0].decode(), int(reply[1])
    # The events of an earlier queue of this name have lower numbers. They went with it, so none of them is missing.
    start = min(max(after, created_ms(queue_id) * 1000), latest)
    columns = decode(reply[3], start)
    rows = zip(
        columns.number, columns.time_ms, columns.kind, columns.message_id, columns.shard_key, columns.stream,
        columns.count, columns.due_ms, columns.client, columns.task, columns.by, columns.note, columns.charged,
        columns.ran, columns.values, columns.version, strict=True,
    )  # fmt: skip
    events = [_event(*row) for row in islice(rows, count)]
    position = events[-1].number if len(events) < len(columns.number) else position_of_page(reply, columns)
    # Events that a failover has undone cannot be counted: they count as one.
    lost = position - start - len(events) + (after > latest)
    return JournalPage(events, position, latest, lost, queue_id, {0: lost} if lost else {})


def position_of_page(reply: Sequence[Any], columns: EventColumns) -> int:
    """Return where to continue behind all that a reply of `journal` has, which holds *columns*.

    It is behind the last entry, also if something else wrote that: a page of nothing else would come again for ever.
    """
    latest, has_more, rows = int(reply[1]), bool(reply[2]), reply[3]
    if not has_more:
        return latest
    return max(columns.position, min(latest, int(rows[-1][0].partition(b"-")[0])))


def _event(
    number: int, ms: int, kind: str, message_id: str, key: bytes | None, stream: int | None, count: int,
    due: int | None, client: str, task: str, by: str, note: str, charged: int | None, ran: int | None,
    values: Mapping[str, str], version: int,
) -> Event:  # fmt: skip
    shard_key = None if key is None else text_or_bytes(key)
    seconds = None if due is None else due / 1000
    return Event(
        number, ms / 1000, kind, message_id, shard_key, stream, count, seconds, client, task, by, note,
        None if charged is None else charged / 10, None if ran is None else ran / 10, values, version,
    )  # fmt: skip


_ONE_DELIVERED: Final = 10_000
"""The field `offset` has the number of a stream in its last four digits, and before these a count."""


def next_stream(offset: str) -> int:
    """Return the number of the stream at which the next read begins."""
    return int(offset) % _ONE_DELIVERED


def delivered(offset: str) -> int:
    """Return how many messages were delivered so far."""
    return int(offset) // _ONE_DELIVERED


def stats(queue: str, reply: Sequence[Any]) -> QueueStats:
    """Read the reply of `stats`; all numbers are zero if there is no such queue."""
    now_ms = int(reply[0])
    if len(reply) == 1:
        return QueueStats(queue, now_ms / 1000, 0, 0, 0, 0, None, ())
    _, backlog, in_flight, delayed, dead, oldest, streams, legacy, meta, *more = reply
    *counted, is_sampled, next_due, due_soon, paused = more
    held_back, limited, runnable, acked, tenants_waiting, retried = map(int, counted)
    until, _, who = paused.partition(b"\x1f")
    pause = pause_of(float(until), who) if until else None
    known = pairs(meta)
    counters = {name: int(known[name]) for name in COUNTS if name in known}
    counters["retrying"] = max(0, counters.get("retrying", 0) - retried)
    return QueueStats(
        queue=queue,
        time=now_ms / 1000,
        backlog=int(backlog),
        in_flight=int(in_flight),
        delayed=int(delayed),
        dead=int(dead),
        # While the whole queue is paused, none of what waits could be delivered.
        oldest_age=None if int(oldest) < 0 or pause else max(0, now_ms - int(oldest)) / 1000,
        streams=tuple(int(count) for count in streams),
        written=int(known["n"]),
        legacy=int(legacy),
        id=known["id"],
        held_back=held_back,
        limited=limited,
        runnable=runnable,
        tenants_waiting=tenants_waiting,
        acked=acked,
        oldest_age_is_sampled=bool(is_sampled) and not pause,
        delivered=delivered(known["offset"]),
        next_due=None if int(next_due) < 0 else int(next_due) / 1000,
        due_soon=int(due_soon),
        paused_until=pause.until if pause else None,
        paused_since=pause.since if pause else None,
        paused_by=pause.by if pause else "",
        paused_note=pause.note if pause else "",
        **counters,
    )


def entries_of(answer: Any) -> list[Any]:
    """Return the entries of the only stream in an answer to XREAD or XREADGROUP; [] if none came."""
    if not answer:
        return []
    streams: Iterable[Any] = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
    return [entry for entries in streams for entry in entries]
