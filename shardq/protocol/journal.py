"""Decode the journal of a queue, which has an event for everything that happened to a message.

docs/events.md describes the format. Events are numbered, and the numbers never start again. A *position* is the number
of the last event that a reader has seen: the events after position 40, up to position 60, are 41 to 60.

>>> parts = b"wd", b"9-1-3,9-1-3", b"6", b"0,1", b"", b"host-7", b"", b"tenanttenant"
>>> rows = [(b"5-1763711999000", [b"2", bytes([10]).join(parts)])]
>>> decode(rows, after=4).kind
['delivered']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote

import msgspec

FORMAT: Final = b"2"
"""The name of an entry's only field. It is the version of the entry's format, and of each event in it."""
OLDER_VERSION: Final = b"1"
"""The version of entries that tell neither times nor values: they lack the part `more`."""

KINDS: Final = {
    "w": "written",
    "d": "delivered",
    "y": "replaced",
    "a": "acked",
    "n": "nacked",
    "u": "recovered",
    "l": "lease_ended",
    "r": "rejected",
    "b": "dead",
    "p": "no_room",
    "v": "redriven",
    "m": "hastened",
    "e": "deleted",
    "x": "expired",
    "k": "cancelling",
    "c": "cancelled",
    "g": "purged",
    "z": "vanished",
    "o": "configured",
    "j": "weighted",
    "i": "limited",
    "s": "stopped",
    "h": "paused",
    "f": "resumed",
    "P": "plan_set",
    "U": "plan_deleted",
    "J": "joined",
    "L": "left",
    "t": "charged",
}
"""The kinds of events, by the letter that stands for each in an entry."""
BILLED: Final = frozenset({
    "acked", "nacked", "recovered", "lease_ended", "rejected", "dead", "no_room", "cancelled", "vanished", "charged",
})  # fmt: skip
"""The kinds that say what was charged: those that can end a delivery, and that of one which continues."""


class EventColumns(msgspec.Struct):
    """Events in columns, each a list of the same length. Times are ms of the server's clock.

    The amount that was `charged`, and the time that a handler `ran`, are in tenths of a ms; None where they are not
    reported. They are the events after position `after` up to `position`, without those that are `lost`.
    """

    after: int
    position: int
    number: list[int] = msgspec.field(default_factory=list)
    time_ms: list[int] = msgspec.field(default_factory=list)
    kind: list[str] = msgspec.field(default_factory=list)
    message_id: list[str] = msgspec.field(default_factory=list)
    shard_key: list[bytes | None] = msgspec.field(default_factory=list)
    stream: list[int | None] = msgspec.field(default_factory=list)
    count: list[int] = msgspec.field(default_factory=list)
    due_ms: list[int | None] = msgspec.field(default_factory=list)
    client: list[str] = msgspec.field(default_factory=list)
    task: list[str] = msgspec.field(default_factory=list)
    by: list[str] = msgspec.field(default_factory=list)
    note: list[str] = msgspec.field(default_factory=list)
    charged: list[int | None] = msgspec.field(default_factory=list)
    ran: list[int | None] = msgspec.field(default_factory=list)
    values: list[dict[str, str]] = msgspec.field(default_factory=list)
    version: list[int] = msgspec.field(default_factory=list)

    @property
    def lost(self) -> int:
        """How many events between `after` and `position` are missing."""
        return self.position - self.after - len(self.number)


def decode(rows: Iterable[Sequence[Any]], after: int, until: int | None = None) -> EventColumns:
    """Return the events after position *after*, up to *until*, in the stream entries *rows*, as XRANGE returns them.

    An entry that another program wrote, or that has a later format, is skipped. The events missing for it are lost.
    """
    columns = EventColumns(after, after)
    for entry_id, fields in rows:
        if until is not None and columns.position >= until:
            break
        decoded = _entry(entry_id, fields)
        if decoded is not None:
            _append(columns, *decoded, until)
    return columns


LOST: Final = "lost"
"""The kind of what stands for events that are missing: it is none of a journal's."""


def with_lost(events: EventColumns, after: int, upto: int, begun_ms: int) -> EventColumns:
    """Return *events* with one for each gap between them, among the numbers behind *after* up to *upto*.

    It has the number of the last event that is missing, as its count how many are, the time of the next event (at the
    end: of the one before, or when the queue was made), and as its due time that of the one before, if there is one.
    """
    found = EventColumns(events.after, events.position)
    numbers, times = [after, *events.number, upto + 1], [*events.time_ms, *events.time_ms[-1:]] or [begun_ms]
    for at, (before, number) in enumerate(pairwise(numbers)):
        if number - before > 1:
            due = events.time_ms[at - 1] if at else None
            row: list[Any] = [
                LOST,
                "",
                None,
                None,
                number - before - 1,
                due,
                "",
                "",
                "",
                "",
                None,
                None,
                {},
                int(FORMAT),
            ]
            for name, value in zip(("number", "time_ms", *_COLUMNS), (number - 1, times[at], *row), strict=True):
                getattr(found, name).append(value)
        if at < len(events.number):
            for name in ("number", "time_ms", *_COLUMNS):
                getattr(found, name).append(getattr(events, name)[at])
    return found


_COLUMNS: Final = (
    "kind", "message_id", "shard_key", "stream", "count", "due_ms", "client", "task", "by", "note", "charged", "ran",
    "values", "version",
)  # fmt: skip
_Entry = tuple[int, int, list[list[Any]]]


def _entry(entry_id: bytes, fields: Sequence[bytes]) -> _Entry | None:
    """Return the number of an entry's last event, its time and its columns; None if shardq cannot have written it."""
    try:
        last, _, ms = entry_id.partition(b"-")
        if len(fields) != 2 or fields[0] not in (FORMAT, OLDER_VERSION):
            return None
        is_older = fields[0] == OLDER_VERSION
        letters, ids, lengths, counts, dues, client, *more, keys = fields[1].split(b"\n", 7 - is_older)
        if len(more) != 1 - is_older:
            return None
        size = len(letters)
        kinds = [KINDS[letter] for letter in letters.decode()]
        owners = _keys(_numbers(lengths, size), keys)
        message_ids = [
            f"{each}.{quote(key or b'', safe='')}" if each.endswith("-o") else each
            for each, key in zip(_message_ids(ids.decode()), owners, strict=True)
        ]
        columns: list[list[Any]] = [
            kinds,
            message_ids,
            owners,
            [_stream(message_id) for message_id in message_ids],
            [count or 0 for count in _numbers(counts, size)],
            _numbers(dues, size),
            *_callers(client.decode(), size, is_write=letters == b"w" * size),
            *_more(None if is_older else more[0], kinds),
            [int(fields[0])] * size,
        ]
        if any(len(column) != size for column in columns):
            return None
        return int(last), int(ms), columns
    except (ValueError, KeyError):  # UnicodeDecodeError is a ValueError
        return None


def _callers(text: str, size: int, *, is_write: bool) -> list[list[str]]:
    """Return four columns: client, task, by, and note.

    A write names no client: in its place are the tasks of the messages, if they are calls. Behind that may be who asked
    for the call, and a note.
    """
    nothing = [""] * size
    client, _, rest = text.partition("\x1f")
    by, _, note = rest.partition("\x1f")
    if is_write:
        return [nothing, client.split(",") if client else nothing, [by] * size, [note] * size]
    return [[client] * size, nothing, [by or client] * size, [note] * size]


def _more(text: bytes | None, kinds: list[str]) -> list[list[Any]]:
    """Return three columns: charged, ran, and values.

    The text, None of an older entry, is "charged|ran|values": in tenths of a ms, in ms as a decimal, and by name.
    """
    size = len(kinds)
    if text is None:
        return [[None] * size, [None] * size, [{} for _ in kinds]]
    charged, _, rest = text.partition(b"|")
    ran, _, values = rest.partition(b"|")
    bills = [
        (tenths or 0) if kind in BILLED else None for kind, tenths in zip(kinds, _numbers(charged, size), strict=True)
    ]
    told = [_values(each) for each in values.split(b"\x1e")] if values else [{} for _ in kinds]
    return [bills, [_tenths(word) for word in ran.split(b",")] if ran else [None] * size, told]


def _tenths(word: bytes) -> int | None:
    """Return ms as tenths of them: "12.5" are 125."""
    ms, _, part = word.partition(b".")
    return 10 * int(ms) + int(part[:1] or b"0") if word else None


def _values(text: bytes) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.decode(errors="replace").split("\x1f") if each)
    return {name: value for name, _, value in pairs}


def _append(columns: EventColumns, last: int, ms: int, parts: list[list[Any]], until: int | None) -> None:
    size = len(parts[0])
    start = max(0, columns.position - (last - size))
    end = size if until is None else size - max(0, last - until)
    if start >= end:
        return
    first = last - size + 1 + start
    columns.position = last - size + end
    columns.number += range(first, columns.position + 1)
    columns.time_ms += [ms] * (end - start)
    for name, part in zip(_COLUMNS, parts, strict=True):
        getattr(columns, name).extend(part[start:end])


def _message_ids(text: str) -> list[str]:
    """Return message ids. The text has whole ids, or "ms|n|a,b,c" for ms-(n+1)-a, ms-(n+2)-b and so on."""
    ms, bar, rest = text.partition("|")
    if not bar:
        return text.split(",")
    before, _, places = rest.partition("|")
    return [f"{ms}-{number}-{place}" for number, place in enumerate(places.split(","), int(before) + 1)]


def _numbers(text: bytes, size: int) -> list[int | None]:
    """Return one number for each event. The text has no number, one for all events, or one for each."""
    if not text:
        return [None] * size
    words = text.split(b",")
    if len(words) == 1:
        return [int(text)] * size
    return [int(word) if word else None for word in words]


def _keys(lengths: list[int | None], joined: bytes) -> list[bytes | None]:
    keys, at = [], 0
    for length in lengths:
        end = at + (length or 0)
        keys.append(joined[at:end] if length else None)
        at = end
    return keys


def _stream(message_id: str) -> int | None:
    place = message_id.split("-", 2)[-1]
    return int(place) if place.isdigit() else None
