"""The pipeline "fairness" as a streaming query: tallies of closed windows are kept, and the report is made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from shardq.errors import ConfigError
from shardq.spark.pipelines.fairness.pipeline import Asked, dealt, judge
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.report import Progress, Report

NEWEST: Final = 1000
"""Folders of tallies that a report tells of, each with one window at least."""


def follow(
    events: DataFrame, asked: Asked, progress: Progress, *, lateness: int = 60, every: float | None = None
) -> int:
    """Keep `asked.out` true to *events*, a streaming DataFrame of one queue's journal; how many tallies came too late.

    A window is closed when events are *lateness* seconds newer than its end; what comes later for it is dropped (and
    counted as Spark does: those of a task with one shard key and delay are one). Its tallies are in `tallies/batch=…`,
    each once, also after a crash. Without *every* (seconds) it ends when it has seen what there is; another run goes on
    there.

    ConfigError unless *asked* has a queue, its streams, and a folder.
    """
    if asked.queue is None or asked.dealt is None or asked.out is None:
        raise ConfigError("to follow a queue, its name, its streams and a folder must be given")
    kept, late = _Kept(events.sparkSession, asked.out, asked), _Late()

    def store(batch: DataFrame, number: int) -> None:
        late.note(query)
        if kept.add(batch, number):
            kept.report(progress)
            progress.say(f"batch {number}: the report is new; {late.count:,} tallies came too late so far")

    trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    closed = tallied(events, asked.window, lateness=lateness)
    writer = closed.writeStream.foreachBatch(store).option("checkpointLocation", str(asked.out / "_checkpoint"))
    query = writer.queryName(f"fairness of {asked.queue}").trigger(**trigger).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
        late.note(query)
        progress.report.figures["late"] = late.count
    return late.count


class _Kept:
    """The tallies of closed windows, a folder for each micro-batch that closed any."""

    def __init__(self, spark: SparkSession, out: Path, asked: Asked) -> None:
        self._spark, self._out, self._asked = spark, out, asked

    def add(self, batch: DataFrame, number: int) -> bool:
        """Write what a micro-batch closed, over what an earlier try left; whether that was anything."""
        batch.persist()
        try:
            if batch.isEmpty():
                return False
            batch.write.mode("overwrite").parquet(str(self._out / "tallies" / f"batch={number:012d}"))
        finally:
            batch.unpersist()
        return True

    def report(self, progress: Progress) -> None:
        """Judge the newest tallies; the report says nothing of earlier ones."""
        folders = sorted((self._out / "tallies").glob("batch=*"))[-NEWEST:]
        tallies = self._spark.read.parquet(*map(str, folders)).repartition("queue", "shard_key").persist()
        progress.report.remarks.clear()
        own = Progress(Report(progress.report.name))  # its steps are not those of the query
        streams, per_shard = self._asked.dealt or (1, 1)
        judge(
            tallies,
            [str(self._asked.queue)],
            lambda found, name: dealt(found, name, streams, per_shard),
            self._asked,
            own,
        )
        tallies.unpersist()
        progress.report.figures |= own.report.figures
        progress.report.remarks += own.report.remarks


class _Late:
    """What Spark dropped because it came after its window was closed."""

    def __init__(self) -> None:
        self._dropped: dict[tuple[str, int], int] = {}

    def note(self, query: Any) -> None:
        """Look at what Spark remembers of its last micro-batches."""
        for each in query.recentProgress:
            dropped = sum(int(state["numRowsDroppedByWatermark"]) for state in each["stateOperators"])
            self._dropped[each["runId"], each["batchId"]] = dropped

    @property
    def count(self) -> int:
        return sum(self._dropped.values())
