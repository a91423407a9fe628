"""The pipeline "route", which writes events with topics to the queues that a router binds to the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType

from shardq.errors import ConfigError
from shardq.routing import Router
from shardq.routing.router import Binding
from shardq.spark.pipelines.inputs import check_columns
from shardq.spark.pipelines.load import load
from shardq.spark.pipelines.report import Progress

MAX_QUEUES: Final = 200
Batches = Iterator[pa.RecordBatch]


def routed(events: DataFrame, bindings: Sequence[Binding], topic: str = "topic") -> DataFrame:
    """The rows of *events* with one more column, `queue`: a row for each queue that its topic goes to.

    Rows whose topic no pattern matches are left out. *bindings* are sent to the tasks once, as they are now.
    ConfigError when there is no column *topic* of text, or there are no bindings. A bad topic fails the job with
    PatternError.
    """
    check_columns(events.schema, {topic: (StringType,)}, "events to route")
    if "queue" in events.columns:
        raise ConfigError("events to route have a column queue already: rename it")
    if not bindings:
        raise ConfigError("the router has no bindings: `shardq bind PATTERN QUEUE` makes one")
    shared = events.sparkSession.sparkContext.broadcast([tuple(each) for each in bindings])
    names = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in events.schema)
    return events.mapInArrow(_route(shared, topic), f"{names}, queue string")


def write(
    routes: DataFrame,
    made: Callable[[DataFrame], DataFrame],
    write_id: str,
    options: Mapping[str, str],
    progress: Progress,
) -> dict[str, int]:
    """Write the rows of `routed` to their queues as messages, which *made* makes of them; the count for each queue.

    Each row is written to each of its queues once, also if the same rows are written again under *write_id*.
    """
    kept = routes.persist()
    try:
        with progress.step("routing"):
            names = [row.queue for row in kept.select("queue").distinct().limit(MAX_QUEUES + 1).collect()]
        if len(names) > MAX_QUEUES:
            raise ConfigError(f"the events go to more than {MAX_QUEUES} queues: route fewer at a time")
        counts = {}
        for name in sorted(names):
            own = kept.where(F.col("queue") == name).drop("queue")
            counts[name] = load(made(own), name, f"{write_id}/{name}", options, progress)
    finally:
        kept.unpersist()
    progress.report.figures = {"queues": counts, "messages": sum(counts.values()), "id": write_id}
    return counts


def _route(shared: Broadcast[list[tuple[str, str]]], topic: str) -> Callable[[Batches], Batches]:
    def route(batches: Batches) -> Batches:
        router = _router(shared)
        for batch in batches:
            column = batch.column(topic).dictionary_encode()
            if column.null_count:
                raise ConfigError(f"column {topic} has a null: each event to route needs a topic")
            queues = [sorted(router.match(each)) for each in column.dictionary.to_pylist()]
            found = [queues[at] for at in column.indices.to_pylist()]
            rows = pa.array([at for at, names in enumerate(found) for _ in names], pa.int64())
            column = pa.array([name for names in found for name in names], pa.string())
            yield batch.take(rows).append_column("queue", column)

    return route


@lru_cache(maxsize=2)
def _built(bindings: tuple[tuple[str, str], ...]) -> Router:
    router = Router()
    for pattern, queue in bindings:
        router.bind(pattern, queue)
    return router


def _router(shared: Broadcast[list[tuple[str, str]]]) -> Router:
    """The router of this process, which is made once for all of its tasks."""
    return _built(tuple(shared.value))
