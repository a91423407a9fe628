"""The pipeline "route", which writes events with topics to the queues that a router binds to the topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from shardq.errors import ConfigError, PatternError
from shardq.routing import Router
from shardq.routing.router import Binding
from shardq.spark.pipelines.earlier import Diverted
from shardq.spark.pipelines.files import NO_LINES, TextLines
from shardq.spark.pipelines.load import LoadColumns, messages, save
from shardq.spark.pipelines.report import PipelineProgress

MAX_QUEUES: Final = 1000
Batches = Iterator[pa.RecordBatch]


def routed(
    events: DataFrame,
    columns: LoadColumns,
    bindings: Sequence[Binding],
    topic: str = "topic",
    lines: TextLines = NO_LINES,
    *,
    divert: bool = False,
) -> DataFrame:
    """The messages made of *events*, with the column `queue`: a row for each queue that its event's topic goes to.

    Events whose topic no pattern matches are left out. One without a good topic fails the job with ConfigError or
    PatternError; to *divert* gives it no queue, so that the writer puts it into its errorQueue. *bindings* are sent to
    the tasks once, as they are now. *lines* says how the events lie in files. ConfigError when there is no column
    *topic* of text, or there are no bindings.
    """
    if topic not in events.columns or not isinstance(events.schema[topic].dataType, StringType):
        there = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in events.schema) or "none"
        raise ConfigError(f"events to route need the column {topic} string; the columns there are: {there}")
    if not bindings:
        raise ConfigError("the router has no bindings: `shardq topics bind PATTERN QUEUE` makes one")
    shared = events.sparkSession.sparkContext.broadcast([tuple(each) for each in bindings])
    made = messages(events, columns, lines, topic=F.col(f"`{topic}`"))
    kept = StructType([StructField(each.name, each.dataType) for each in made.schema if each.name != "topic"])
    return made.mapInArrow(_route(shared, divert=divert), kept.add("queue", "string"))


def write(
    routes: DataFrame, queues: Iterable[str], write_id: str, options: Mapping[str, str], progress: PipelineProgress
) -> dict[str, int]:
    """Write the messages of `routed` in one job; how many there were for each of *queues* that they go to.

    Each is written to each of its queues once, also if the same events are written again under *write_id*. *options*
    are those of format("shardq"), without a queue.
    """
    names, seen = sorted(set(queues)), Observation()
    if len(names) > MAX_QUEUES:
        raise ConfigError(f"the router has {len(names):,} queues: a job writes to {MAX_QUEUES:,} at most")
    counts = (F.count_if(F.col("queue") == name).alias(f"queue {at}") for at, name in enumerate(names))
    diverted = Diverted(write_id, options)
    with progress.step(f"routing as {write_id}"):
        save(routes.observe(seen, F.count(F.lit(1)).alias("messages"), *counts), write_id, options)
    found = {name: int(seen.get[f"queue {at}"]) for at, name in enumerate(names)}
    written = {name: count for name, count in found.items() if count}
    progress.report.figures |= {"queues": written, "messages": sum(written.values()), "id": write_id}
    diverted.tell(routes, progress)
    return written


def _route(shared: Broadcast[list[tuple[str, str]]], *, divert: bool) -> Callable[[Batches], Batches]:
    def route(batches: Batches) -> Batches:
        router = _router(tuple(shared.value))

        def queues_of(topic: str | None) -> list[str | None]:
            try:
                if topic is None:
                    raise ConfigError("an event has no topic: give it one, or name a queue for such events (--errors)")
                return [*sorted(router.match(topic))]
            except (ConfigError, PatternError):
                if divert:
                    return [None]
                raise

        seen: Counter[str] = Counter()
        for batch in (_numbered(each, seen) for each in batches):
            column = batch.column("topic").dictionary_encode(null_encoding="encode")
            queues = [queues_of(each) for each in column.dictionary.to_pylist()]
            found = [queues[at] for at in column.indices.to_pylist()]
            rows = pa.array([at for at, names in enumerate(found) for _ in names], pa.int64())
            column = pa.array([name for names in found for name in names], pa.string())
            yield batch.drop_columns(["topic"]).take(rows).append_column("queue", column)

    return route


def _numbered(batch: pa.RecordBatch, seen: Counter[str]) -> pa.RecordBatch:
    """*batch*, whose column `source` says which row of its part each is: a queue gets only some of them.

    *seen* counts those of each part.
    """
    if "source" not in batch.schema.names:
        return batch
    numbers = []
    for part in batch.column("part").to_pylist():
        numbers.append(seen[part])
        seen[part] += 1
    at = batch.schema.get_field_index("source")
    kind = batch.schema.field(at).type
    fields = dict(zip((each.name for each in kind), batch.column(at).flatten(), strict=True))
    fields["row"] = pa.array(numbers, pa.int32())
    return batch.set_column(at, batch.schema.field(at), pa.StructArray.from_arrays([*fields.values()], fields=[*kind]))


@lru_cache(maxsize=2)
def _router(bindings: tuple[tuple[str, str], ...]) -> Router:
    """The router of this process, which is made once for all of its tasks."""
    router = Router()
    for pattern, queue in bindings:
        router.bind(pattern, queue)
    return router
