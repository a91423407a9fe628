"""The pipeline "fairness", which makes tables, a picture, a page and a report from journal events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from os import PathLike, fspath
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.spark.pipelines import shards
from shardq.spark.pipelines.fairness.findings import Findings, findings
from shardq.spark.pipelines.fairness.removed import corrections
from shardq.spark.pipelines.fairness.service import Fairness, fairness
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.files import overridden
from shardq.spark.pipelines.folder import Folder
from shardq.spark.pipelines.report import Progress

MAX_QUEUES = 100

SIZED: Final = {
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}
"""Settings with which tables have as many partitions as they need. By default a kept table has as many as a shuffle
(200), however few rows it has, and so has all that is made of it. The second setting makes a partition for each core of
more than 1 MB; tasks without Python are cheap."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to report on.

    `window`: the length of a window in seconds. `dealt`: the queue's numbers of streams and of streams per shard, if
    known. `queue`: only this queue. `out`: the folder for tables, pictures and pages, by its path or URL; None writes
    none.
    """

    window: int = 60
    dealt: tuple[int, int] | None = None
    queue: str | None = None
    out: str | PathLike[str] | None = None


def run(events: DataFrame, request: Request, progress: Progress) -> list[Findings]:
    """The findings on each queue in *events*, which are journal events; tables and pages are written to `request.out`.

    ConfigError when there are no events, or the DataFrame has not the columns of a journal.
    """
    if request.queue is not None and "queue" in events.columns:
        events = events.where(F.col("queue") == request.queue)
    with overridden(events.sparkSession, SIZED), _counted(events, request.window, progress) as (tallies, queues):
        return judge(tallies, queues, None if request.dealt else events, request, progress)


@contextmanager
def _counted(events: DataFrame, window: int, progress: Progress) -> Iterator[tuple[DataFrame, list[str]]]:
    """The tallies of *events* in this context, and the names of the queues."""
    with progress.step("counting events by window and shard key"):
        kept = tallied(events, window).repartition("queue", "shard_key").persist()  # all that follows is by these
        left = {row.queue: row.left for row in kept.groupBy("queue").agg(F.sum("left").alias("left")).collect()}
    tallies = [kept]
    try:
        if len(left) > MAX_QUEUES:
            raise ConfigError(f"there are more than {MAX_QUEUES} queues in the events: name one")
        if any(left.values()):
            with progress.step("looking up removed messages"):
                tallies.append(corrections(events, window).persist())
                tallies[-1].count()
        yield reduce(DataFrame.unionByName, tallies), sorted(left)
    finally:
        for each in tallies:
            each.unpersist()


def judge(
    tallies: DataFrame, queues: Sequence[str], events: DataFrame | None, request: Request, progress: Progress
) -> list[Findings]:
    """The findings on each of *queues* from *tallies*.

    *events* show the shards of their shard keys; None where *request* says which the queue deals.
    """
    with progress.step("fair shares"):
        found = fairness(tallies, request.window)
        found.by_key.count()
    every = []
    for name in queues:
        with progress.step(f"findings on {name}"):
            streams = _dealt(found, name, request) if events is None else shards.seen(events)
            every.append(findings(found, tallies, streams, name, request.window))
    if request.out is not None:
        with progress.step(f"writing to {request.out}"):
            _write(found, every, Folder(tallies.sparkSession, fspath(request.out)))
    progress.report.figures["queues"] = [each.figures() for each in every]
    progress.report.remarks += [f"{each.queue}: {remark}" for each in every for remark in each.remarks()]
    found.by_key.unpersist()
    return every


def _dealt(found: Fairness, queue: str, request: Request) -> DataFrame:
    """The shards that *queue* deals to the shard keys that were found."""
    keys = found.by_key.where(F.col("queue") == queue).select("queue", "shard_key").distinct()
    return shards.dealt(keys, *(request.dealt or (1, 1)))


def _write(found: Fairness, every: list[Findings], out: Folder) -> None:
    """Write the tables as Parquet, and a picture and a page for each queue."""
    for name, table in (("by_window", found.by_window), ("keys", found.keys), ("by_key", found.by_key)):
        table.write.mode("overwrite").parquet(out.to(name))
    from shardq.spark.pipelines.fairness.page import page
    from shardq.spark.pipelines.fairness.pictures import png

    for each in every:
        picture = png(each)
        stem = each.queue.replace("/", "_").replace(":", "_")
        out.write(picture, f"{stem}.png")
        out.write(page(each, picture).encode(), f"{stem}.html")
