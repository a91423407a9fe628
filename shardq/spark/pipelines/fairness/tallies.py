"""Journal events counted by window and shard key, in a form that can be added up: of batches, and of streams.

Pick-up delays are counted in buckets whose bounds grow by 2 % (DDSketch: Masson, Rim & Lee, PVLDB 12(12), 2019), so
tallies add up by adding their counts, and any percentile of any sum of them is within 1 % of the exact one. (Sketches
that bound the error in ranks, as KLL, say little about the 99th percentile.)

A delayed message arrives when it is due, in another window than that of the event. So a tally has two windows: `seen`,
by the time of the events, on which a stream's watermark works, and `window`, by when it counts.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.spark.pipelines.inputs import check_columns

GROWTH: Final = 1.02
"""The ratio of a bucket's bounds; the bucket's value is within 1 % of all that it counts."""

LEAST_WINDOW, LONGEST_WINDOW = 1, 31 * 86_400
COUNTS: Final = ("arrived", "picked", "repeated", "left", "acked", "nacked", "lease_ended", "dead")
"""What is counted: messages that became deliverable (arrived), were delivered for the first time (picked) or again
(repeated), left the queue before any delivery (left); and how deliveries ended."""

WANTED: Final = {
    "queue": (StringType,),
    "time": (TimestampType,),
    "kind": (StringType,),
    "message_id": (StringType,),
    "shard_key": (BinaryType, StringType),
    "count": (IntegerType, LongType),
    "due": (TimestampType,),
}
"""The columns of journal events that are needed here (docs/journal.md)."""


def check_window(window: int) -> int:
    """*window* if it is a valid length in whole seconds; else ConfigError."""
    if type(window) is not int or not LEAST_WINDOW <= window <= LONGEST_WINDOW:
        raise ConfigError(
            f"window must be a whole number of seconds from {LEAST_WINDOW} to {LONGEST_WINDOW:,}, not {shown(window)}"
        )
    return window


def tallied(events: DataFrame, window: int, *, lateness: int | None = None, apart: Column | None = None) -> DataFrame:
    """Count *events* by queue, shard key, window of *window* seconds, and bucket of pick-up delay.

    With *lateness*, in seconds, for a streaming DataFrame: a window is closed that long after the newest event, and
    what comes later for it is dropped (Spark counts it). *apart* is one more column to count by, called `apart`.
    ConfigError for events without the columns of a journal.
    """
    check_columns(events.schema, WANTED, "journal events")
    check_window(window)
    if lateness is not None:
        events = events.withWatermark("time", f"{lateness} seconds")
    more = [] if apart is None else [apart.alias("apart")]
    counted = events.select(
        "time", "queue", "shard_key", _arrival(window).alias("window"), _bucket().alias("bucket"), *_counts(), *more
    )
    seen = F.window("time", f"{window} seconds").alias("seen")
    by = ["queue", "shard_key", "window", "bucket", *(["apart"] if more else [])]
    summed = counted.groupBy(seen, *by).agg(*(F.sum(name).alias(name) for name in COUNTS))
    return summed.withColumn("seen", F.col("seen.start"))


def bucket_value(bucket: Column) -> Column:
    """The delay in ms that stands for a bucket."""
    return F.when(bucket > 0, 2 * F.pow(F.lit(GROWTH), bucket - 1) / (GROWTH + 1)).otherwise(0.0)


def is_removal() -> Column:
    """Whether an event is the removal of a message that nobody had in flight."""
    return F.col("kind").isin("expired", "cancelled", "purged", "vanished") & (F.col("count") == 0)


def window_of(time: Column, window: int) -> Column:
    """The start of the window in which *time* lies."""
    ms = F.unix_millis(time)
    return F.timestamp_millis(ms - ms % (window * 1000))


def _counts() -> list[Column]:
    kind, first = F.col("kind"), F.col("count") <= 1
    when = {
        "arrived": kind == "written",
        "picked": (kind == "delivered") & first,
        "repeated": (kind == "delivered") & ~first,
        "left": is_removal(),
        "acked": kind == "acked",
        "nacked": kind == "nacked",
        "lease_ended": kind == "lease_ended",
        "dead": kind.isin("rejected", "dead"),
    }
    return [when[name].cast("long").alias(name) for name in COUNTS]


def _arrival(window: int) -> Column:
    """The start of the window in which an event counts; for a write with a delay that of the message's due time."""
    late = (F.col("kind") == "written") & (F.col("due") > F.col("time"))
    return window_of(F.when(late, F.col("due")).otherwise(F.col("time")), window)


def _bucket() -> Column:
    """The bucket of a first delivery's pick-up delay: 0 for none, b for GROWTH ** (b - 2) to GROWTH ** (b - 1) ms.

    A message's id begins with the time of its write; it is deliverable then, or when it is due.
    """
    written = F.split_part("message_id", F.lit("-"), F.lit(1)).try_cast("long")
    ready = F.greatest(written, F.unix_millis("due"))
    delay = F.unix_millis("time") - ready
    placed = F.when(delay < 1, 0).otherwise(1 + F.ceil(F.log(delay) / math.log(GROWTH)))
    return F.when((F.col("kind") == "delivered") & (F.col("count") <= 1), placed.cast("int"))
