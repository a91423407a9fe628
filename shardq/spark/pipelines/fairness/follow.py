"""The pipeline "fairness" as a streaming query: tallies of closed windows are kept, and the report is made anew."""

from __future__ import annotations

import json
from os import fspath
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.spark.pipelines.fairness.pipeline import Request, dealt, judge
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.folder import Folder
from shardq.spark.pipelines.partitions import sized
from shardq.spark.pipelines.report import Progress, Report

CLAIM: Final = "_follows.json"
NEWEST: Final = 1000
"""How many folders of tallies a report covers; each has at least one window."""


def follow(
    events: DataFrame, request: Request, progress: Progress, *, lateness: int = 60, every: float | None = None
) -> int:
    """Keep the report in `request.out` up to date with *events*; return how many tallies came too late.

    *events* is a streaming DataFrame of one queue's journal. A window is closed when there are events *lateness*
    seconds newer than its end. Later events of the window are dropped; Spark counts them after it has added up those of
    one task with the same shard key and delay bucket. The tallies are stored in `tallies/batch=…`, each once, also
    after a crash. Without *every* (seconds) the query ends when it has read all events; the next run continues there.

    ConfigError unless *request* has a queue, its streams, and a folder in which the same was followed before, if any.
    """
    if request.queue is None or request.dealt is None or request.out is None:
        raise ConfigError("to follow a queue, its name, its streams and a folder must be given")
    out = Folder(events.sparkSession, fspath(request.out))
    _claim(out, request)
    stored, late = _StoredTallies(events.sparkSession, out, request), _Late()

    def store(batch: DataFrame, number: int) -> None:
        late.note(query)
        if stored.add(batch, number):
            stored.report(progress)
            progress.say(f"batch {number}: the report is new; {late.count:,} tallies came too late so far")

    trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    closed = tallied(events, request.window, lateness=lateness)
    writer = closed.writeStream.foreachBatch(store).option("checkpointLocation", out.to("_checkpoint"))
    query = writer.queryName(f"fairness of {request.queue}").trigger(**trigger).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
        late.note(query)
        progress.report.figures["late"] = late.count
    return late.count


def _claim(out: Folder, request: Request) -> None:
    """Write down what is followed in this folder. ConfigError if it is something else: their tallies do not add up."""
    wanted = {"queue": request.queue, "window": request.window}
    found = json.loads("".join(out.lines(CLAIM))) if out.has(CLAIM) else wanted
    if found != wanted:
        raise ConfigError(
            f"{out.path} follows {shown(found.get('queue'))} with windows of {shown(found.get('window'))} s, not "
            f"{shown(request.queue)} with windows of {request.window} s: ask for the same, or name another folder"
        )
    out.write_json(wanted, CLAIM)


class _StoredTallies:
    """The stored tallies of closed windows, in a folder for each micro-batch that closed any."""

    def __init__(self, spark: SparkSession, out: Folder, request: Request) -> None:
        self._spark, self._out, self._request = spark, out, request

    def add(self, batch: DataFrame, number: int) -> bool:
        """Write the windows that a micro-batch closed over those of an earlier try; False if it closed none."""
        batch.persist()
        try:
            if batch.isEmpty():
                return False
            batch.write.mode("overwrite").parquet(self._out.to("tallies", f"batch={number:012d}"))
        finally:
            batch.unpersist()
        return True

    def report(self, progress: Progress) -> None:
        """Make the report from the newest tallies; earlier ones are not in it."""
        names = [name for name in self._out.names("tallies") if name.startswith("batch=")][-NEWEST:]
        folders = [self._out.to("tallies", name) for name in names]
        tallies = self._spark.read.parquet(*folders).repartition("queue", "shard_key").persist()
        progress.report.remarks.clear()
        own = Progress(Report(progress.report.name))  # its steps are not those of the query
        streams, per_shard = self._request.dealt or (1, 1)
        with sized(self._spark):
            judge(
                tallies,
                [str(self._request.queue)],
                lambda found, name: dealt(found, name, streams, per_shard),
                self._request,
                own,
            )
        tallies.unpersist()
        progress.report.figures |= own.report.figures
        progress.report.remarks += own.report.remarks


class _Late:
    """Counts the tallies that Spark dropped because they came after their window was closed."""

    def __init__(self) -> None:
        self._dropped: dict[tuple[str, int], int] = {}

    def note(self, query: Any) -> None:
        """Add what Spark says of the last micro-batches."""
        for each in query.recentProgress:
            dropped = sum(int(state["numRowsDroppedByWatermark"]) for state in each["stateOperators"])
            self._dropped[each["runId"], each["batchId"]] = dropped

    @property
    def count(self) -> int:
        return sum(self._dropped.values())
