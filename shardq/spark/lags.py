"""How far a streaming query is behind, from its progress: Spark has no metrics for sources written in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardq.protocol.replies import created_ms
from shardq.spark.causes import QUERY
from shardq.spark.connection import queue_in


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a query is behind in one queue. Each is None where it cannot be known: dead letters are not numbered.

    `lag` returns them.
    """

    events: int | None
    """How many events it has not read yet; of a consumer, how many messages wait."""
    seconds: float | None
    """The time from the last row that it has read to the newest one; of a consumer, for how long the longest waiting
    message has been deliverable. 0 when nothing is left."""


def lag(progress: Any) -> dict[str, Lag]:
    """How far each queue of format("shardq") is behind, by *progress*, such as `query.lastProgress`; {} for None.

    It raises nothing if *progress* is Spark's own.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> message_id = client.queue("jobs", journal=1_000).write(b"hello", shard_key="acme")
    >>> options = {"url": "redis://localhost:6379", "subscribe": "jobs", "state": "journal"}
    >>> rows = spark.readStream.format("shardq").options(**options).load()
    >>> query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    >>> query.awaitTermination()
    >>> lag(query.lastProgress)
    {'jobs': Lag(events=0, seconds=0.0)}
    """
    sources = _sources(progress)
    lags: dict[str, Lag] = {}
    for tag, found in (row for each in sources for row in _lags(_offset(each, "end"), _offset(each, "latest"))):
        name = queue_in(tag)
        lags[name] = _together(lags[name], found) if name in lags else found
    return lags


def _together(one: Lag, other: Lag) -> Lag:
    """How far a query is behind in two partitions of a queue."""
    events = None if one.events is None or other.events is None else one.events + other.events
    seconds = None if one.seconds is None or other.seconds is None else max(one.seconds, other.seconds)
    return Lag(events, seconds)


def offsets_of(progress: Any) -> list[Mapping[str, Any]]:
    """The offsets at which the last micro-batch of *progress* ended, one for each source that has such offsets."""
    return [end for each in _sources(progress) if isinstance(end := _offset(each, "end"), Mapping)]


def unfinished_offsets(text: str) -> list[Mapping[str, Any]]:
    """The offsets of micro-batches that were begun and not committed, in the *text* of a query's exception.

    It tells which offsets are committed and which are available. Those of a micro-batch that is committed are both.
    """
    found: dict[str, list[Any]] = {}
    state = text.rpartition(QUERY)[2] if QUERY in text else ""
    for at in re.finditer(r'\{"hold":', state):
        offset, _ = json.JSONDecoder().raw_decode(state, at.start())
        found.setdefault(offset["hold"], []).append(offset)
    newest = [max(offsets, key=lambda each: int(each["batch"])) for offsets in found.values()]
    return [each for each in newest if found[each["hold"]].count(each) == 1]


def _sources(progress: Any) -> list[Any]:
    if progress is None:
        return []
    found = progress["sources"] if isinstance(progress, Mapping) else json.loads(progress.json)["sources"]
    return list(found)


def _offset(source: Any, which: str) -> Any:
    value = source.get(f"{which}Offset")
    return json.loads(value) if isinstance(value, str) else value


def _lags(end: Any, latest: Any) -> list[tuple[str, Lag]]:
    """The lags of one source; none unless it is of this format."""
    if not isinstance(end, Mapping) or not isinstance(latest, Mapping):
        return []
    if "hold" in end:
        return [(name, Lag(each["waiting"], each["oldestAge"])) for name, each in latest.items()]
    marks = {name: mark for name, mark in latest.items() if isinstance(mark, Mapping) and "to" in mark}
    return [(name, _lag(end[name], mark)) for name, mark in marks.items() if name in end]


def _lag(read: Any, newest: Mapping[str, Any]) -> Lag:
    """The lag between the mark of what was *read*, or its point alone, and that of the *newest* row.

    Events are numbered from when their queue was made. If it was recreated, all are still to be read.
    """
    mark = read if isinstance(read, Mapping) else {"to": read}
    if mark["to"] == newest["to"]:
        return Lag(0, 0.0)
    numbered = isinstance(mark["to"], int) and isinstance(newest["to"], int)
    made = created_ms(newest["id"]) if numbered and "id" in newest else 0
    if numbered and mark["to"] < made * 1000:
        mark = {"to": made * 1000, "time": made}
    events = max(0, newest["to"] - mark["to"]) if numbered else None
    read_at, newest_at = mark.get("time"), newest.get("time")
    return Lag(events, None if read_at is None or newest_at is None else max(0, newest_at - read_at) / 1000)
