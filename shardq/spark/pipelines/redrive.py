"""The pipeline "redrive", which moves dead letters that an SQL condition chooses back to their queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from threading import Event
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shardq.arguments import shown
from shardq.client import Queue
from shardq.clock import Clock, SystemClock
from shardq.errors import ConfigError, PartlyDone
from shardq.model import DeadLetter
from shardq.spark.pipelines.report import PipelineProgress
from shardq.spark.schema import table_schema

LETTERS_A_CALL: Final = 100
MAX_SHOWN: Final = 10


def letters(spark: SparkSession, url: str, queue: str, condition: str, **options: str) -> DataFrame:
    """The dead letters of *queue* for which the SQL *condition* is true, without payloads unless it names them.

    The columns are those of docs/spark.md; `key` is the shard key as bytes.
    """
    try:
        return _letters(spark, url, queue, options, payloads=False).where(condition)  # the word may be in a text only
    except AnalysisException:
        if "payload" not in condition.lower():
            raise
        return _letters(spark, url, queue, options, payloads=True).where(condition)


def _letters(spark: SparkSession, url: str, queue: str, options: Mapping[str, str], *, payloads: bool) -> DataFrame:
    """All dead letters of *queue*."""
    reader = spark.read.format("shardq").options(url=url, subscribe=queue, state="dead", **options)
    kinds = {each.name: each.dataType.simpleString() for each in table_schema("dead")} | {"shard_key": "binary"}
    if not payloads:
        del kinds["payload"]
    dead = reader.schema(", ".join(f"{name} {kind}" for name, kind in kinds.items())).load()
    return dead.withColumn("key", F.col("shard_key")).withColumn("shard_key", F.col("key").cast("string"))


def preview(chosen: DataFrame, progress: PipelineProgress) -> int:
    """Count the chosen dead letters, and add the counts by reason and of shard keys to the report."""
    by_reason = chosen.groupBy("reason").count().orderBy(F.desc("count"), "reason").limit(MAX_SHOWN).collect()
    total = chosen.agg(F.count(F.lit(1)), F.count_distinct("key"), F.min("died_at"), F.max("died_at")).first()
    count, keys, oldest, newest = total or (0, 0, None, None)
    progress.report.figures |= {"chosen": count, "shard_keys": keys}
    progress.report.remarks += [f"{row['count']:,} dead of {row.reason!r}" for row in by_reason]
    if count:
        progress.report.remarks.append(f"they died from {oldest} to {newest}")
    return int(count)


def redrive(
    chosen: DataFrame,
    queue: Queue,
    rate: float,
    progress: PipelineProgress,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], object] | None = None,
) -> int:
    """Move the *chosen* dead letters back into *queue*, at most *rate* per second; returns how many were moved.

    Dead letters that are gone meanwhile are skipped, so it can be run again after it was interrupted. QueueFull or
    PartlyDone if the queue has no room for more.
    """
    if not 0 < rate < 1e9:
        raise ConfigError(f"rate must be a positive number of messages per second, not {shown(rate)}")
    clock, pause = clock or SystemClock(), pause or Event().wait
    begun, tried, moved = clock.monotonic(), 0, 0
    progress.sofar = lambda: f"{moved:,} of {tried:,} dead letters are back in the queue"
    rows = chosen.select("entry_id", "message_id", "key").orderBy("died_at", "entry_id").toLocalIterator()
    found, size = map(_letter, rows), max(1, min(LETTERS_A_CALL, int(rate)))
    while some := list(islice(found, size)):
        if (early := begun + tried / rate - clock.monotonic()) > 0:
            pause(early)
        try:
            moved += queue.redrive(some)
        except PartlyDone as partly:
            moved += partly.done
            raise
        tried += len(some)
    progress.report.figures["redriven"] = moved
    return moved


def _letter(row: Any) -> DeadLetter:
    """A dead letter with the fields that a redrive needs."""
    return DeadLetter(row.entry_id, row.message_id, bytes(row.key), "", 0, "", 0.0, 0.0, b"")
