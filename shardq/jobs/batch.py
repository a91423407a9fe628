"""Events as Redis has them, as a table of events: with a row where some are missing."""

from __future__ import annotations

from typing import Any

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa

from shardq.jobs.arrays import NONE, times_of
from shardq.jobs.schema import EVENTS, TIME
from shardq.protocol.ids import with_partition
from shardq.protocol.journal import LOST, EventColumns, with_lost
from shardq.protocol.replies import created_ms


def table_of(queue: str, queue_id: str, partition: int, columns: EventColumns, start: int, position: int) -> pa.Table:
    """Return the events after number *start* up to *position*, for one partition of a queue."""
    columns = with_lost(columns, start, position, created_ms(queue_id))
    size = len(columns.number)
    suffix = with_partition("", partition)
    arrays: dict[str, Any] = {
        "queue": pa.repeat(pa.scalar(queue), size),
        "queue_id": pa.repeat(pa.scalar(queue_id), size),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), size),
        "number": pa.array(columns.number, pa.int64()),
        "time": _times(columns.time_ms),
        "kind": pa.array(columns.kind, pa.string()),
        "message_id": pa.array([each + suffix if each else None for each in columns.message_id], pa.string()),
        "shard_key": _text([each or None for each in columns.shard_key]),
        "count": pa.array(columns.count, pa.int64()),
        "due": _times(columns.due_ms),
        **{name: pa.array([each or None for each in getattr(columns, name)], pa.string()) for name in _NAMES},
        "charged_ms": pa.array(_decimals(columns.charged), pa.float64()),
        "ran_ms": pa.array(_decimals(columns.ran), pa.float64()),
        "values": pa.array([[*each.items()] for each in columns.values], EVENTS.field("values").type),
    }
    table = pa.table([arrays[each.name] for each in EVENTS], schema=EVENTS)
    if partition:  # the head alone reports actions on all partitions
        told = zip(columns.message_id, columns.kind, strict=True)
        table = table.filter(pa.array([bool(name) or kind == LOST for name, kind in told], pa.bool_()))
    return table


_NAMES = ("client", "by", "note", "task")


def _times(ms: list[int] | list[int | None]) -> pa.Array:
    """A column of times; null for a number that is too large for one."""
    if not any(each is not None for each in ms):
        return pa.nulls(len(ms), TIME)
    return times_of(np.array([NONE if each is None or each > 2**52 else each for each in ms], np.int64))


def _text(values: list[bytes | None]) -> pa.Array:
    """A column of text; bytes that are not UTF-8 become escapes."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each and each.decode(errors="backslashreplace") for each in values], pa.string())


def _decimals(tenths: list[int | None]) -> list[float | None]:
    return [None if each is None else each / 10 for each in tenths]
