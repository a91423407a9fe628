"""Dead letters and journal events as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from shardq.protocol.journal import Columns
from shardq.spark.entries import Entries, batch_of, constant, ms_of, text_array, times

Column = Callable[[], pa.Array]


def dead_batch(queue: str, rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of dead letters, given as XRANGE returns them."""
    ids = [row[0] for row in rows]
    heads, flats = [], []
    for entry, flat in rows:
        ours = len(flat) >= 8 and flat[0] == b"i"
        heads.append(flat[1:8:2] if ours else [entry, b"", b"0", b""])
        flats.append(flat[8:] if ours else flat)
    message_ids, reasons, counts, errors = (list(column) for column in zip(*heads, strict=True))
    kinds = {each.name: each.type for each in schema}
    own: dict[str, Column] = {
        "message_id": lambda: text_array(message_ids, kinds["message_id"]),
        "reason": lambda: text_array(reasons, kinds["reason"]),
        "count": lambda: pa.array([int(each) if each.isdigit() else 0 for each in counts], kinds["count"]),
        "last_error": lambda: text_array([each or None for each in errors], kinds["last_error"]),
        "written_at": lambda: ms_of(pa.array(message_ids, pa.binary())),
        "died_at": lambda: ms_of(pa.array(ids, pa.binary())),
        "entry_id": lambda: text_array(ids, kinds["entry_id"]),
    }
    shared = pa.schema([each for each in schema if each.name not in own])
    rest = batch_of(Entries(queue, "", ids, flats, "dead"), shared)
    columns = [own[each.name]() if each.name in own else rest.column(each.name) for each in schema]
    return pa.record_batch(columns, schema=schema)


def journal_batch(queue: str, events: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of journal events."""
    kinds = {each.name: each.type for each in schema}
    columns: dict[str, Column] = {
        "queue": lambda: constant(queue, len(events.number), kinds["queue"]),
        "number": lambda: pa.array(events.number, kinds["number"]),
        "time": lambda: times(events.time_ms),
        "kind": lambda: pa.array(events.kind, kinds["kind"]),
        "message_id": lambda: pa.array(events.message_id, kinds["message_id"]),
        "shard_key": lambda: text_array(events.shard_key, kinds["shard_key"]),
        "stream": lambda: pa.array(events.stream, kinds["stream"]),
        "count": lambda: pa.array(events.count, kinds["count"]),
        "due": lambda: times(events.due_ms),
        "client": lambda: pa.array([each or None for each in events.client], kinds["client"]),
    }
    return pa.record_batch([columns[each.name]() for each in schema], schema=schema)
