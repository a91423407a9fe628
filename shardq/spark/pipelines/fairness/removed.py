"""What the events of removed messages do not say, and their earlier events do: whether they ever waited.

A message that is removed leaves what was waiting. One that had been delivered before, and given back, had left already
with its first delivery. One that was delayed, and removed before it was due, never arrived. Its removal says neither,
so the tallies, which look at one event at a time, count it wrong. The rows made here set that right when added.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shardq.spark.pipelines.fairness.tallies import COUNTS, is_removal, window_of

MESSAGE = ("queue", "message_id")
KEPT: Final = ("kind", "message_id", "time", "count", "due")
GIVEN_BACK: Final = ("nacked", "recovered", "lease_ended", "no_room", "redriven", "cancelling")
"""Kinds of events that only a message that was delivered has."""


def kept() -> Column:
    """What a stream must keep of an event, so that `corrections` can be made later: null for most events.

    Of deliveries only those are kept after which the message may wait again, by what happened to it then.
    """
    needed = is_removal() | _arrives() | (F.col("kind").isin(*GIVEN_BACK) & (F.col("count") <= 1))
    return F.when(needed, F.struct(*KEPT))


def corrections(events: DataFrame, window: int) -> DataFrame:
    """Tallies to be added to those of *events* (`tallied`), for all removed messages that had not been waiting."""
    known = events.where(is_removal() & F.col("shard_key").isNotNull())  # the others count for nobody
    removed = known.select(*MESSAGE, "shard_key", F.col("time").alias("removed")).dropDuplicates(MESSAGE)
    leaves = F.col("kind").isin("delivered", *GIVEN_BACK) & (F.col("count") <= 1)
    earlier = events.where(_arrives() | leaves).drop("shard_key").join(removed, list(MESSAGE))
    wrong = earlier.where(leaves | (F.col("due") > F.col("removed"))).dropDuplicates(MESSAGE)
    undone = F.array(
        _undone("left", F.col("removed"), window),
        F.when(_arrives(), _undone("arrived", F.col("due"), window)),
    )
    rows = wrong.select("queue", "shard_key", window_of(F.col("removed"), window).alias("seen"), F.explode(undone))
    return rows.where("col is not null").select("seen", "queue", "shard_key", "col.*")


def _arrives() -> Column:
    """Whether an event is the write of a delayed message."""
    return (F.col("kind") == "written") & (F.col("due") > F.col("time"))


def _undone(name: str, time: Column, window: int) -> Column:
    """A tally that takes one from the count *name* of the window at *time*."""
    counts = [F.lit(-1 if each == name else 0).cast("long").alias(each) for each in COUNTS]
    return F.struct(window_of(time, window).alias("window"), F.lit(None).cast("int").alias("bucket"), *counts)
