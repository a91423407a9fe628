"""The journal as a table: ranges of its events, which are numbered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.journal import decode
from shardq.ops import scan
from shardq.ops.state import QueueState
from shardq.spark.options import Reading
from shardq.spark.parts import Part
from shardq.spark.tables import journal_batch

log = logging.getLogger("shardq")
SPLIT = 50_000
"""More events than this are read by several tasks."""
LAST = 2**64 - 1
"""The highest second half of an entry id."""


def newest(client: Client, state: QueueState) -> int:
    """The position of the newest event. ConfigError where the queue keeps no journal."""
    raw = client.run(scan.field_of(state, state.keys.meta, "events"))
    if raw is None:
        raise ConfigError(f"queue {state.keys.name!r} keeps no journal: queue.configure(journal=1_000_000) starts it")
    return int(raw)


def oldest(client: Client, state: QueueState) -> int:
    """The position before the oldest event that is kept."""
    rows = client.run(scan.page(state, state.keys.journal, "-", "+", 1))
    events = decode(rows, after=0)
    return events.number[0] - 1 if events.number else newest(client, state)


def ranges(name: str, after: int, until: int, most: int) -> list[Part]:
    """The events after one position up to another, in even parts."""
    parts = max(1, min(most, (until - after) // SPLIT))
    cuts = [after + (until - after) * at // parts for at in range(parts + 1)]
    return [Part(name, (), str(low), str(high)) for low, high in pairwise(cuts) if low < high]


def event_parts(client: Client, state: QueueState, options: Reading, most: int) -> list[Part]:
    """The parts of a batch read: from the oldest (or where it is to start) to the newest event there is now."""
    name, until = state.keys.name, newest(client, state)
    start = options.position("startingOffsets", name)
    end = options.position("endingOffsets", name)
    first = oldest(client, state) if start is None else start
    return ranges(name, first, until if end is None else min(end, until), most)


def read_events(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, after: str, until: str
) -> Iterator[pa.RecordBatch]:
    """Events after one position up to another; BackendError if some are not there any more and that may not be."""
    position, end, key = int(after), int(until), state.keys.journal
    while position < end:
        rows = client.run(scan.page(state, key, f"{position}-{LAST}", "+", max(1, options.fetch_size // 10)))
        events = decode(rows, position, end)
        seen = min(end, int(rows[-1][0].partition(b"-")[0])) if rows else end
        if lost := events.lost + seen - events.position:
            _lose(state.keys.name, options, lost, position)
        position = seen
        if events.number:
            yield journal_batch(state.keys.name, events, schema)


def _lose(name: str, options: Reading, lost: int, position: int) -> None:
    text = (
        f"{lost:,} events after position {position} of the journal of queue {name!r} are not there any more: it keeps "
        "too few (`journal`) for how late it is read"
    )
    if options.fail_on_data_loss:
        raise ConfigError(f"{text}; failOnDataLoss=false goes on without them")
    log.warning("%s", text)
