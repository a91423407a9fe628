"""The shard keys that share streams with the noisy ones, and how they fared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shardq.spark.pipelines.fairness.service import percentiles

MOST_NOISY: Final = 20
WORST: Final = 5
"""How many noisy shard keys are examined, and how many neighbours of each are named."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A shard key that shares `shared` streams with a noisy one; its 95th percentile of pick-up delay, in ms."""

    shard_key: Any
    shared: int
    p95: float | None


@dataclass(frozen=True, slots=True)
class Noisy:
    """A noisy shard key: its streams, how many others share exactly j of them, for j = 1 on, and the worst off."""

    shard_key: Any
    streams: tuple[int, ...]
    sharing: tuple[int, ...]
    worst: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Clean:
    """The quiet shard keys with `clean` clean streams: how many, their deliveries, their pick-up delays in ms."""

    clean: int
    keys: int
    picked: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The noisy shard keys of one queue, the noisiest first, and the quiet ones by number of clean streams."""

    noisy: tuple[Noisy, ...]
    clean: tuple[Clean, ...]


def neighbourhood(keys: DataFrame, tallies: DataFrame, shards: DataFrame) -> Neighbourhood:
    """The neighbourhood in one queue, from `Fairness.keys`, its *tallies*, and the streams of each shard key."""
    placed = keys.join(shards.select("shard_key", "streams"), "shard_key").persist()
    order = [F.desc("excess"), F.desc("demand_share"), "shard_key"]
    try:
        noisy = placed.where("noisy > 0").orderBy(*order).limit(MOST_NOISY).collect()
        if not noisy:
            return Neighbourhood((), ())
        taken = sorted({stream for row in noisy for stream in row.streams})
        quiet = placed.where(~F.col("shard_key").isin([row.shard_key for row in noisy]))
        return Neighbourhood(_around(placed, noisy), _by_clean(quiet, tallies, taken))
    finally:
        placed.unpersist()


def _around(placed: DataFrame, noisy: list[Any]) -> tuple[Noisy, ...]:
    """Each noisy shard key with those that share streams with it."""
    marked = placed.sparkSession.createDataFrame(
        [(at, row.shard_key, row.streams) for at, row in enumerate(noisy)],
        f"at int, noisy_key {placed.schema['shard_key'].dataType.simpleString()}, noisy_streams array<int>",
    )
    shared = F.size(F.array_intersect("streams", "noisy_streams"))
    pairs = placed.crossJoin(F.broadcast(marked)).where(F.col("shard_key") != F.col("noisy_key"))
    sharing = pairs.select("at", "shard_key", "p95", shared.alias("shared")).where("shared > 0")
    counts = {(row.at, row.shared): row["count"] for row in sharing.groupBy("at", "shared").count().collect()}
    rank = F.row_number().over(Window.partitionBy("at").orderBy(F.desc_nulls_last("p95"), "shard_key"))
    worst = sharing.withColumn("rank", rank).where(F.col("rank") <= WORST).orderBy("at", "rank").collect()
    return tuple(
        Noisy(
            row.shard_key,
            tuple(row.streams),
            tuple(counts.get((at, common), 0) for common in range(1, len(row.streams) + 1)),
            tuple(Neighbour(each.shard_key, each.shared, each.p95) for each in worst if each.at == at),
        )
        for at, row in enumerate(noisy)
    )


def _by_clean(quiet: DataFrame, tallies: DataFrame, taken: list[int]) -> tuple[Clean, ...]:
    clean = F.size(F.array_except("streams", F.array(*map(F.lit, taken))))
    left = quiet.select("shard_key", clean.alias("clean"))
    found = (
        tallies.join(left, "shard_key")
        .groupBy("clean")
        .agg(F.count_distinct("shard_key").alias("keys"), F.sum("picked").alias("picked"), *percentiles())
        .orderBy("clean")
    )
    return tuple(Clean(row.clean, row["keys"], row.picked, row.p50, row.p95, row.p99) for row in found.collect())
