"""How fair a queue was: demand, service and pick-up delay by shard key and window, Jain's index, noisy neighbours.

In each window a shard key's *demand* is the number of its messages that waited at the start, and of those that arrived.
Its *service* is the number of messages that were delivered for the first time. The *fair share* is max-min fair: a
shard key with a demand below a certain *level* gets all of it, the others get the level, and all together get the
service of the window (Bertsekas & Gallager, Data Networks, 1992, 6.5.2). Jain's index is computed of service / fair
share over all shard keys with a demand. It is 1 when all got their fair share, and 1/n when one of n got everything
(Jain, Chiu & Hawe, DEC-TR-301, 1984, section 4).

A shard key is *noisy* in a window if its demand was more than `NOISY` times the level, and anything was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.spark.pipelines.fairness.tallies import COUNTS, bucket_value, check_window

NOISY: Final = 2.0
MAX_WINDOWS: Final = 10_000
PERCENTILES: Final = (0.5, 0.95, 0.99)
NAMES: Final = tuple(f"p{round(share * 100)}" for share in PERCENTILES)


@dataclass(frozen=True, slots=True)
class Fairness:
    """The tables. All are lazy. The others are made of `by_key`, so it is worth a `cache()`.

    - `by_key`: a row for each queue, window and shard key that had a demand or service: counts, `carried` (waiting at
      the start), `demand`, `level`, `fair`, `noisy`, p50, p95, p99 (ms).
    - `by_window`: for each queue and window: counts, `keys`, `demand`, `waiting` (at the end), `level`, `jain`,
      `noisy`, p50, p95, p99.
    - `keys`: for each queue and shard key: counts, `share` of the service, `demand_share`, `excess` and `owed`
      (served above and below the fair share), `windows`, `noisy` (windows), p50, p95, p99. The shares are null if the
      queue served nothing, or nothing arrived.
    """

    by_key: DataFrame
    by_window: DataFrame
    keys: DataFrame
    begin: datetime
    end: datetime


def fairness(tallies: DataFrame, window: int) -> Fairness:
    """The tables of *tallies*, which must be made with the same *window* (seconds).

    ConfigError when there are no tallies, or too many windows. Tallies without a shard key are left out.
    """
    check_window(window)
    begin, end = _bounds(tallies, window)
    known = tallies.where(F.col("shard_key").isNotNull() & (F.col("window") <= F.lit(end)))
    counts = known.groupBy("queue", "window", "shard_key").agg(*_sums(), *percentiles())
    by_key = _shared(_carried(counts, window, end)).persist()
    by_window = _by_window(by_key).join(_delays(known, "queue", "window"), ["queue", "window"], "left")
    keys = _by_shard_key(by_key).join(_delays(known, "queue", "shard_key"), ["queue", "shard_key"], "left")
    return Fairness(by_key, by_window, keys, begin, end)


def percentiles() -> list[Column]:
    """Columns p50, p95, p99 of the delays that tallies count, in ms; interpolated as numpy does."""
    value, weight = bucket_value(F.col("bucket")), F.coalesce("picked", F.lit(0))
    found = F.percentile(F.when(F.col("bucket").isNotNull(), value), list(PERCENTILES), weight)
    return [found[at].alias(name) for at, name in enumerate(NAMES)]


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in COUNTS]


def _delays(tallies: DataFrame, *keys: str) -> DataFrame:
    return tallies.groupBy(*keys).agg(*percentiles())


def _bounds(tallies: DataFrame, window: int) -> tuple[datetime, datetime]:
    """The first and the last window. Windows after the last event would have only messages that are not due yet."""
    found: Any = tallies.agg(F.min("window"), F.max("seen")).first()
    begin, end = found
    if begin is None:
        raise ConfigError("there are no journal events: is the queue's journal on (configure journal=1000000)?")
    if (count := (end - begin).total_seconds() / window) > MAX_WINDOWS:
        raise ConfigError(f"{count:,.0f} windows are too many: choose longer ones than {window} s, or a shorter time")
    return begin, end


def _carried(counts: DataFrame, window: int, end: datetime) -> DataFrame:
    """Add how many messages waited at each window's start, and rows for windows in which nothing else happened.

    Messages that were delivered but never arrived must have waited before the first event. The smallest backlog that
    explains them is assumed.
    """
    key = Window.partitionBy("queue", "shard_key")
    timed = key.orderBy("window")
    change = F.col("arrived") - F.col("picked") - F.col("left")
    step = F.make_dt_interval(secs=F.lit(window))
    found = (
        counts.withColumn("sum", F.sum(change).over(timed))
        .withColumn("waiting", F.col("sum") + F.greatest(F.lit(0), -F.min("sum").over(key)))
        .withColumn("carried", F.col("waiting") - change)
        .withColumn("next", F.lead("window").over(timed))
    )
    stop = F.coalesce(F.col("next") - step, F.lit(end))
    idle = (F.col("waiting") > 0) & (F.col("window") + step <= stop)
    own = F.array("window")
    windows = F.when(idle, F.concat(own, F.sequence(F.col("window") + step, stop, step))).otherwise(own)
    spread = found.withColumn("at", F.explode(windows)).withColumn("own", F.col("at") == F.col("window"))
    return spread.select(
        "queue", F.col("at").alias("window"), "shard_key",
        *(F.when(F.col("own"), F.col(name)).otherwise(0).alias(name) for name in COUNTS),
        *(F.when(F.col("own"), F.col(name)).alias(name) for name in NAMES),
        "waiting", F.when(F.col("own"), F.col("carried")).otherwise(F.col("waiting")).alias("carried"),
    )  # fmt: skip


def _shared(rows: DataFrame) -> DataFrame:
    """Add the demand, the level, the fair share and whether the shard key was noisy.

    With the n demands d in rising order, the level is the greatest (served - d_1 - ... - d_k-1) / (n - k + 1) of all k:
    each of these is a lower bound of the level, and one of them is the level.
    """
    alone = Window.partitionBy("queue", "window")
    rising = alone.orderBy("demand", "shard_key")
    below = F.coalesce(F.sum("demand").over(rising.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    left = F.count("*").over(alone) - F.row_number().over(rising) + 1
    return (
        rows.withColumn("demand", F.col("carried") + F.col("arrived"))
        .where(F.col("demand") > 0)
        .withColumn("level", (F.sum("picked").over(alone) - below) / left)
        .withColumn("level", F.max("level").over(alone))
        .withColumn("fair", F.least("demand", "level"))
        .withColumn("noisy", (F.col("level") > 0) & (F.col("demand") > NOISY * F.col("level")))
    )


def _by_window(by_key: DataFrame) -> DataFrame:
    ratio = F.when(F.col("fair") > 0, F.col("picked") / F.col("fair"))
    jain = F.pow(F.sum(ratio), 2) / (F.count(ratio) * F.sum(ratio * ratio))
    return by_key.groupBy("queue", "window").agg(
        *_sums(), F.count("*").alias("keys"), F.sum("demand").alias("demand"), F.sum("waiting").alias("waiting"),
        F.max("level").alias("level"), jain.alias("jain"), F.count_if("noisy").alias("noisy"),
    )  # fmt: skip


def _by_shard_key(by_key: DataFrame) -> DataFrame:
    surplus = F.col("picked") - F.col("fair")
    summed = by_key.groupBy("queue", "shard_key").agg(
        *_sums(), F.sum("demand").alias("demand"), F.max("waiting").alias("most_waiting"),
        F.count("*").alias("windows"), F.count_if("noisy").alias("noisy"),
        F.sum(F.greatest(surplus, F.lit(0.0))).alias("excess"), F.sum(F.greatest(-surplus, F.lit(0.0))).alias("owed"),
    )  # fmt: skip
    queue = Window.partitionBy("queue")
    shares = {"share": "picked", "demand_share": "arrived"}
    return summed.withColumns({name: F.try_divide(count, F.sum(count).over(queue)) for name, count in shares.items()})
