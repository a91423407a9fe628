"""The journal as a table, which is read in ranges of event numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, NamedTuple

from msgspec.structs import fields, replace

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.ops.queue.state import QueueState
from shardq.protocol.journal import LOST, EventColumns, decode, with_lost
from shardq.protocol.replies import created_ms
from shardq.spark.connection import queue_in, same_seen_queue, seen_queue
from shardq.spark.entries import constant, text_array, times
from shardq.spark.ops import scan
from shardq.spark.ops.scan import LAST_SEQUENCE
from shardq.spark.options import Reading, listed
from shardq.spark.parts import SparkPart

log = logging.getLogger("shardq")


def read_events(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: SparkPart
) -> Iterator[pa.RecordBatch]:
    """The events of a part; ConfigError if some are lost and `failOnDataLoss` is true, QueueMissing if all are gone.

    With `markDataLoss` a row of the kind "lost" stands where some are missing.
    """
    life = _life(options, state)
    position, end, key = int(part.after), int(part.until), state.keys.journal
    keys = frozenset(each.encode() for each in listed(options.shard_keys))
    while position < end:
        rows = client.run(scan.page(state, key, f"{position}-{LAST_SEQUENCE}", "+", max(1, options.fetch_size // 10)))
        events = decode(rows, position, end)
        seen = min(end, int(rows[-1][0].partition(b"-")[0])) if rows else end
        if lost := seen - position - len(events.number):
            same_seen_queue(options, part.queue, part.life)  # those of a queue that was deleted are not lost
            _lose(state.keys.name, options, lost, position)
            if options.mark_data_loss:
                events = with_lost(events, position, seen, created_ms(life))
        position = seen
        if keys:
            events = _only(events, [key in keys for key in events.shard_key])
        if state.number:  # the head alone reports actions on all partitions
            told = zip(events.message_id, events.kind, strict=True)
            events = _only(events, [bool(message_id) or kind == LOST for message_id, kind in told])
        if events.number:
            yield _batch(EventSource(state.keys.name, life, state.number), events, schema)


def _life(options: Reading, state: QueueState) -> str:
    """The id of the whole queue of a partition."""
    return seen_queue(options, queue_in(state.keys.tag)).view.id if state.number else state.view.id


class EventSource(NamedTuple):
    """The origin of events: the name and the id of a queue, and the number of a partition."""

    queue: str
    life: str
    partition: int


def _batch(source: EventSource, events: EventColumns, schema: pa.Schema) -> pa.RecordBatch:
    size = len(events.number)
    columns: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "queue": lambda kind: constant(source.queue, size, kind),
        "queue_id": lambda kind: constant(source.life, size, kind),
        "partition": lambda kind: pa.repeat(pa.scalar(source.partition, kind), size),
        "number": lambda kind: pa.array(events.number, kind),
        "time": lambda _: times(events.time_ms),
        "kind": lambda kind: pa.array(events.kind, kind),
        "message_id": lambda kind: pa.array(
            [None if name == LOST else each for name, each in zip(events.kind, events.message_id, strict=True)], kind
        ),
        "shard_key": lambda kind: text_array(events.shard_key, kind),
        "stream": lambda kind: pa.array(events.stream, kind),
        "count": lambda kind: pa.array(events.count, kind),
        "due": lambda _: times(events.due_ms),
        "client": lambda kind: pa.array([each or None for each in events.client], kind),
        "by": lambda kind: pa.array([each or None for each in events.by], kind),
        "note": lambda kind: pa.array([each or None for each in events.note], kind),
        "task": lambda kind: pa.array([each or None for each in events.task], kind),
        "charged_ms": lambda kind: pa.array(_ms(events.charged), kind),
        "ran_ms": lambda kind: pa.array(_ms(events.ran), kind),
        "values": lambda kind: pa.array([list(each.items()) or None for each in events.values], kind),
        "version": lambda kind: pa.array(events.version, kind),
    }
    return pa.record_batch([columns[each.name](each.type) for each in schema], schema=schema)


def _ms(tenths: list[int | None]) -> list[float | None]:
    return [None if each is None else each / 10 for each in tenths]


def _only(events: EventColumns, wanted: list[bool]) -> EventColumns:
    """The events that are wanted."""
    some: dict[str, Any] = {
        each.name: [*compress(column, wanted)]
        for each in fields(events)
        if isinstance(column := getattr(events, each.name), list)
    }
    return replace(events, **some)


def _lose(name: str, options: Reading, lost: int, position: int) -> None:
    text = (
        f"{lost:,} events after position {position} of the journal of queue {name!r} are lost: it keeps too few events "
        "(setting `journal`) for how late it is read"
    )
    if options.fail_on_data_loss:
        raise ConfigError(f"{text}; failOnDataLoss=false continues without them")
    log.warning("%s", text)
