"""Dead letters as a table, which is read in ranges of entry ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.ops.queue.state import QueueState
from shardq.spark.entries import Entries, batch_of, ms_of, text_array
from shardq.spark.options import Reading, listed
from shardq.spark.pages import pages
from shardq.spark.parts import SparkPart


def read_dead(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: SparkPart
) -> Iterator[pa.RecordBatch]:
    """The dead letters of *part*."""
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    for rows in pages(client, state, state.keys.dead, part.after, part.until, options.fetch_size):
        found = [row for row in rows if len(row[1]) > 9 and row[1][9] in keys] if keys else rows
        if found:
            yield _batch(state.keys.name, found, schema)


def _batch(queue: str, rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of dead letters, given as XRANGE returns them."""
    ids = [row[0] for row in rows]
    heads, flats = [], []
    for entry, flat in rows:
        ours = len(flat) >= 8 and flat[0] == b"i"
        heads.append(flat[1:8:2] if ours else [entry, b"", b"0", b""])
        flats.append(flat[8:] if ours else flat)
    message_ids, reasons, counts, errors = (list(column) for column in zip(*heads, strict=True))
    own: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "message_id": lambda kind: text_array(message_ids, kind),
        "reason": lambda kind: text_array(reasons, kind),
        "count": lambda kind: pa.array([int(each) if each.isdigit() else 0 for each in counts], kind),
        "last_error": lambda kind: text_array([each or None for each in errors], kind),
        "written_at": lambda _: ms_of(pa.array(message_ids, pa.binary())),
        "died_at": lambda _: ms_of(pa.array(ids, pa.binary())),
        "entry_id": lambda kind: text_array(ids, kind),
    }
    shared = pa.schema([each for each in schema if each.name not in own])
    rest = batch_of(Entries(queue, "", ids, flats, "dead"), shared)
    columns = [own[each.name](each.type) if each.name in own else rest.column(each.name) for each in schema]
    return pa.record_batch(columns, schema=schema)
