"""The pipeline "route", which writes events with topics to the queues that a router binds to the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from shardq.errors import ConfigError
from shardq.routing import Router
from shardq.routing.router import Binding
from shardq.spark.pipelines.inputs import check_columns
from shardq.spark.pipelines.load import Columns, load, messages
from shardq.spark.pipelines.report import Progress

MAX_QUEUES: Final = 200
Batches = Iterator[pa.RecordBatch]


def routed(events: DataFrame, columns: Columns, bindings: Sequence[Binding], topic: str = "topic") -> DataFrame:
    """The messages made of *events*, with the column `queue`: a row for each queue that its event's topic goes to.

    Events whose topic no pattern matches are left out. One without a good topic fails the job with ConfigError or
    PatternError. *bindings* are sent to the tasks once, as they are now. ConfigError when there is no column *topic* of
    text, or there are no bindings.
    """
    check_columns(events.schema, {topic: (StringType,)}, "events to route")
    if not bindings:
        raise ConfigError("the router has no bindings: `shardq bind PATTERN QUEUE` makes one")
    shared = events.sparkSession.sparkContext.broadcast([tuple(each) for each in bindings])
    made = messages(events, columns, topic=F.col(f"`{topic}`"))
    kept = StructType([StructField(each.name, each.dataType) for each in made.schema if each.name != "topic"])
    return made.mapInArrow(_route(shared), kept.add("queue", "string"))


def write(routes: DataFrame, write_id: str, options: Mapping[str, str], progress: Progress) -> dict[str, int]:
    """Write the messages of `routed` to their queues; the count for each queue.

    Each is written to each of its queues once, also if the same events are written again under *write_id*.
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
            counts[name] = load(own, name, f"{write_id}/{name}", options, progress)
    finally:
        kept.unpersist()
    progress.report.figures = {"queues": counts, "messages": sum(counts.values()), "id": write_id}
    return counts


def _route(shared: Broadcast[list[tuple[str, str]]]) -> Callable[[Batches], Batches]:
    def route(batches: Batches) -> Batches:
        router = _router(shared)
        for batch in batches:
            column = batch.column("topic").dictionary_encode()
            if column.null_count:
                raise ConfigError("an event has no topic: each event to route needs one")
            queues = [sorted(router.match(each)) for each in column.dictionary.to_pylist()]
            found = [queues[at] for at in column.indices.to_pylist()]
            rows = pa.array([at for at, names in enumerate(found) for _ in names], pa.int64())
            column = pa.array([name for names in found for name in names], pa.string())
            yield batch.drop_columns(["topic"]).take(rows).append_column("queue", column)

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
