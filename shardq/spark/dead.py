"""Dead letters as a table: stretches of their stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from shardq.client import Client
from shardq.ops import scan
from shardq.ops.state import QueueState
from shardq.spark.options import Reading, listed
from shardq.spark.parts import Part
from shardq.spark.tables import dead_batch

SPLIT = 20_000
"""More dead letters than this are read by several tasks."""
LAST = 2**64 - 1
"""The highest second half of an entry id."""


def dead_parts(client: Client, state: QueueState, options: Reading, most: int) -> list[Part]:
    """Even stretches of time; one where there are few letters."""
    key, name = state.keys.dead, state.keys.name
    count = client.run(scan.length(state, key))
    if not count:
        return []
    first = int(client.run(scan.page(state, key, "-", "+", 1))[0][0].partition(b"-")[0])
    last = client.run(scan.last_id(state, key))
    end = int(last.partition("-")[0])
    first = max(first, options.starting_timestamp)
    last = f"{min(end, options.ending_timestamp)}" if 0 < options.ending_timestamp <= end else last
    parts = min(most, 1 + count // SPLIT)
    cuts = [first + (end + 1 - first) * at // parts for at in range(1, parts)]
    starts = [f"{first - 1}-{2**64 - 1}", *(f"{cut - 1}-{2**64 - 1}" for cut in cuts)]
    return [Part(name, (), after, until) for after, until in zip(starts, [*starts[1:], last], strict=True)]


def read_dead(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, after: str, until: str
) -> Iterator[pa.RecordBatch]:
    """Dead letters after one entry id, up to another."""
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    while rows := client.run(scan.page(state, state.keys.dead, after, until, options.fetch_size)):
        after = rows[-1][0].decode()
        if keys:
            rows = [row for row in rows if len(row[1]) > 9 and row[1][9] in keys]
        if rows:
            yield dead_batch(state.keys.name, rows, schema)
