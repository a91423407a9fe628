"""Messages of a queue as Arrow columns. Only the requested columns are made; payloads are not examined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import msgspec

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.protocol.bodies import FROM_OVERFLOW, EntryBody, entry_body, is_ours, message_id, number_of
from shardq.protocol.ids import with_partition

_TIME = pa.timestamp("us", tz="UTC")
_PLAIN = 4  # fields of an entry that has neither attributes nor headers
_OURS = frozenset({b"k", b"K"})
GATHERED_ROWS = 100
"""Entries of fewer rows are joined with others."""


@dataclass
class Entries:
    """Some messages that lie in one place, by column: their ids and fields, and what else the queue says of them.

    `origins` say where each was written, as in its id; where there are none, that is the place.
    """

    queue: str
    place: str
    ids: list[bytes]
    flats: list[Sequence[Any]]
    states: list[str] | str
    lease_until: Sequence[int | None] = ()
    due: Sequence[int | None] = ()
    counts: Sequence[int] = ()
    errors: Sequence[str] = ()
    leases: Sequence[str] = ()
    origins: Sequence[str] = ()

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self.ids)

    def only(self, rows: Sequence[int]) -> Entries:
        """The entries at the positions *rows*."""

        def some(column: Any) -> Any:
            return column if isinstance(column, str) or not column else [column[at] for at in rows]

        return Entries(**{each.name: some(getattr(self, each.name)) for each in fields(self)})

    @cached_property
    def raw_ids(self) -> pa.Array:
        """The ids as a column of bytes."""
        return pa.array(self.ids, pa.binary())

    @cached_property
    def bodies(self) -> list[EntryBody] | None:
        """The parsed fields of the entries; None if all are plain, without attributes and headers, as most are."""
        plain = {*map(len, self.flats)} <= {_PLAIN} and all(map(is_ours, self.flats))
        origins = self.origins or [self.place] * len(self)
        if plain and "l" not in origins:
            return None
        return [entry_body(flat, foreign=origin == "l") for flat, origin in zip(self.flats, origins, strict=True)]


def gathered(found: Iterable[Entries]) -> Iterator[Entries]:
    """*found*, where those of one queue that are few are joined: a column costs as much for one row as for many."""
    few: list[Entries] = []
    rows = 0
    for each in found:
        few.append(each)
        rows += len(each)
        if rows >= GATHERED_ROWS:
            yield _joined(few)
            few, rows = [], 0
    if few:
        yield _joined(few)


def _joined(few: Sequence[Entries]) -> Entries:
    if len(few) == 1:
        return few[0]

    def column(name: str, nothing: Any) -> list[Any]:
        """One column of all; [] if none of them has it."""
        if not any(getattr(each, name) for each in few):
            return []
        return [*chain.from_iterable(getattr(each, name) or repeat(nothing, len(each)) for each in few)]

    states = (repeat(each.states, len(each)) if isinstance(each.states, str) else each.states for each in few)
    origins = (each.origins or repeat(each.place, len(each)) for each in few)
    return Entries(
        few[0].queue,
        "",
        [*chain.from_iterable(each.ids for each in few)],
        [*chain.from_iterable(each.flats for each in few)],
        [*chain.from_iterable(states)],
        lease_until=column("lease_until", None),
        due=column("due", None),
        counts=column("counts", 0),
        errors=column("errors", ""),
        leases=column("leases", ""),
        origins=[*chain.from_iterable(origins)],
    )


def batch_of(entries: Entries, schema: pa.Schema) -> pa.RecordBatch:
    """*entries* as a record batch with the columns of *schema*."""
    return pa.record_batch([_COLUMNS[each.name](entries, each.type) for each in schema], schema=schema)


def placed(batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    """*batches* of partition *number*, with the ids that users know: they say the partition."""
    return (_placed(each, number) for each in batches) if number else batches


def _placed(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    for at, name in enumerate(batch.schema.names):
        if name in ("message_id", "entry_id"):
            ids = pc.binary_join_element_wise(batch.column(at).cast(pa.string()), with_partition("", number), "")
            batch = batch.set_column(at, batch.schema.field(at), ids.cast(batch.schema.field(at).type))
    return batch


def text_array(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Bytes as a column of text or of bytes; in text, bytes that are not UTF-8 become escapes."""
    raw = pa.array(values, pa.binary())
    if kind == pa.binary():
        return raw
    try:
        return raw.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode(errors="backslashreplace") for each in values], kind)


def constant(value: str, count: int, kind: pa.DataType) -> pa.Array:
    """A column with *value* in each row."""
    return pa.repeat(pa.scalar(value, kind), count)


def times(values: Sequence[int | None]) -> pa.Array:
    """Milliseconds as a column of times; null for a number that is too large for a time."""
    return pa.array([None if each is None or each > 2**52 else each * 1000 for each in values], pa.int64()).cast(_TIME)


def ms_of(ids: pa.Array) -> pa.Array:
    """The milliseconds in entry ids, which are a column of bytes, as a column of times."""
    if len(ids) and pc.all(pc.equal(pc.binary_slice(ids, 13, 14), b"-")).as_py():  # until the year 2286
        digits = pc.binary_slice(ids, 0, 13).cast(pa.string())
        return pc.multiply(digits.cast(pa.int64()), 1000).cast(_TIME)
    return times([int(each.partition(b"-")[0]) for each in ids.to_pylist()])


def picked(entries: Entries, states: Sequence[str], keys: frozenset[bytes]) -> Entries:
    """The entries in one of *states*, and of one of the shard *keys* if there are any."""
    rows: Sequence[int] = range(len(entries))
    if not isinstance(entries.states, str):
        rows = [at for at in rows if entries.states[at] in states]
    elif entries.states not in states:
        rows = []
    if keys:
        rows = [at for at in rows if len(flat := entries.flats[at]) > 1 and flat[1] in keys]
    return entries if len(rows) == len(entries) else entries.only(rows)


def _message_id(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.origins or not entries.place.isdigit():
        return pa.array(_written_ids(entries), kind)
    return pc.binary_join_element_wise(entries.raw_ids, entries.place.encode(), b"-").cast(kind)


def _written_ids(entries: Entries) -> Iterator[str]:
    """The ids, which end with the shard key where nothing else leads to the message. There are few shard keys."""
    tails: dict[bytes, str] = {}
    for each, origin, flat in zip(entries.ids, entries.origins or repeat(entries.place), entries.flats, strict=False):
        if origin != FROM_OVERFLOW:
            yield message_id(each.decode(), origin, "")
            continue
        tail = tails.get(flat[1])
        if tail is None:
            tail = tails[flat[1]] = message_id("", origin, flat[1])
        yield each.decode() + tail


def _shard_key(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.bodies is None:
        return text_array([flat[1] for flat in entries.flats], kind)
    return text_array([flat[1] if len(flat) > 1 and flat[0] in _OURS else None for flat in entries.flats], kind)


def _attribute(name: str) -> Callable[[Entries, pa.DataType], pa.Array]:
    def column(entries: Entries, kind: pa.DataType) -> pa.Array:
        if entries.bodies is None:
            return pa.nulls(len(entries), kind)
        return times([number_of(body.attributes, name) or None for body in entries.bodies])

    return column


def _due_at(entries: Entries, kind: pa.DataType) -> pa.Array:
    """When a delayed message comes due; when a message came due that was delayed before."""
    own = _attribute("t")(entries, kind)
    return pc.coalesce(times(entries.due), own) if entries.due else own


def _state(entries: Entries, kind: pa.DataType) -> pa.Array:
    if isinstance(entries.states, str):
        return constant(entries.states, len(entries), kind)
    return pa.array(entries.states, kind)


def _stream(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.origins:
        return pa.array([int(each) if each.isdigit() else None for each in entries.origins], kind)
    if not entries.place.isdigit():
        return pa.nulls(len(entries), kind)
    return pa.repeat(pa.scalar(int(entries.place), kind), len(entries))


def _count(entries: Entries, kind: pa.DataType) -> pa.Array:
    if not entries.counts and entries.bodies is None:
        return pa.repeat(pa.scalar(0, kind), len(entries))
    counts = entries.counts or [0] * len(entries)
    if entries.bodies is not None:
        counts = [count + number_of(body.attributes, "c") for count, body in zip(counts, entries.bodies, strict=True)]
    return pa.array(counts, kind)


def _last_error(entries: Entries, kind: pa.DataType) -> pa.Array:
    return pa.array([each or None for each in entries.errors], kind) if entries.errors else pa.nulls(len(entries), kind)


def _codec(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.bodies is None:
        tags = [flat[2] for flat in entries.flats]
        return constant(tags[0].decode(), len(tags), kind) if len({*tags}) == 1 else text_array(tags, kind)
    return pa.array(["m" if body.fields is not None else body.tag for body in entries.bodies], kind)


def _headers(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.bodies is None:
        return pa.nulls(len(entries), kind)
    return pa.array([[*body.headers.items()] or None for body in entries.bodies], kind)


def _payload(entries: Entries, kind: pa.DataType) -> pa.Array:
    if entries.bodies is None:
        return pa.array([flat[3] for flat in entries.flats], kind)
    return pa.array([tag_and_payload(body.tag, body.payload, body.fields)[1] for body in entries.bodies], kind)


def tag_and_payload(tag: str, payload: bytes, fields: Mapping[str, bytes] | None) -> tuple[str, bytes]:
    """The codec and the payload; an entry that another program wrote is a MessagePack map of its fields."""
    return (tag, payload) if fields is None else ("m", msgspec.msgpack.encode(dict(fields)))


_COLUMNS: dict[str, Callable[[Entries, pa.DataType], pa.Array]] = {
    "queue": lambda entries, kind: constant(entries.queue, len(entries), kind),
    "message_id": _message_id,
    "shard_key": _shard_key,
    "state": _state,
    "stream": _stream,
    "written_at": lambda entries, _: ms_of(entries.raw_ids),
    "due_at": _due_at,
    "deadline": _attribute("x"),
    "lease_until": lambda entries, kind: (
        times(entries.lease_until) if entries.lease_until else pa.nulls(len(entries), kind)
    ),
    "count": _count,
    "last_error": _last_error,
    "lease": lambda entries, kind: pa.array(entries.leases, kind),
    "codec": _codec,
    "headers": _headers,
    "payload": _payload,
}
