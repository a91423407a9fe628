"""The pipeline "plan", which examines all tenants under each candidate for N and M, on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, NumericType, StringType

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.planner.choice import frontier
from shardq.planner.odds import MAX_TENANTS, check_count
from shardq.spark.pipelines.inputs import check_columns
from shardq.spark.pipelines.planning.model import Load
from shardq.spark.pipelines.planning.survey import CHUNK, Candidate, Survey, assumed, named
from shardq.spark.pipelines.planning.verdict import Verdict, judged, recommended
from shardq.spark.pipelines.report import Progress

MAX_CANDIDATES: Final = 32
MAX_NOISY: Final = 10_000
FOUND: Final = "candidate int, found string, at int, tenants double, load double"
COLUMNS: Final = pa.schema(
    {"candidate": pa.int32(), "found": pa.string(), "at": pa.int32(), "tenants": pa.float64(), "load": pa.float64()}
)
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Goal:
    """The share `isolation` of the quiet tenants shall wait at most `within` seconds while the noisy flood."""

    load: Load
    isolation: float = 0.99
    within: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.isolation < 1:
            raise ConfigError(f"isolation must be a share between 0 and 1, such as 0.99, not {shown(self.isolation)}")
        if not self.within > 0:
            raise ConfigError(f"within must be a positive number of seconds, not {shown(self.within)}")
        check_count("noisy", self.load.noisy, 1, MAX_NOISY)


def candidates(tenants: int, goal: Goal) -> list[Candidate]:
    """The candidates to survey: for each M the fewest streams that reach the isolation (`planner.frontier`)."""
    plans = frontier(tenants, goal.load.noisy, goal.isolation)
    if not plans:
        raise ConfigError("no queue reaches this isolation: lower it, or name candidates such as 64x4")
    return [Candidate(each.streams, each.streams_per_shard) for each in plans]


def survey_assumed(
    spark: SparkSession, tenants: int, tried: Sequence[Candidate], goal: Goal, *, skew: float = 1.0, seed: int = 0
) -> list[Survey]:
    """Survey *tenants* assumed ones, with random shards, loads of 1 / rank ^ *skew*, and other floods in each chunk."""
    check_count("tenants", tenants, 1, MAX_TENANTS)
    chunks = -(-tenants // CHUNK)

    def work(surveys: list[Survey], batch: pa.RecordBatch) -> None:
        for chunk in batch.column("id").to_pylist():
            first = chunk * CHUNK
            assumed(surveys, first, min(CHUNK, tenants - first), goal.load, skew, seed)

    parts = min(chunks, 4 * max(1, spark.sparkContext.defaultParallelism))
    return _surveyed(spark.range(0, chunks, 1, parts), tried, work)


def tenants_of(table: DataFrame) -> DataFrame:
    """The tenants of a table with `shard_key` and `load`; ConfigError for other columns."""
    wanted: dict[str, Any] = {"shard_key": (StringType, BinaryType), "load": (NumericType,)}
    check_columns(table.schema, wanted, "tenants")
    return table.select(
        F.col("shard_key").cast("binary").alias("shard_key"), F.col("load").cast("double").alias("load")
    )


def count_tenants(loads: DataFrame) -> int:
    """How many tenants a table has as `tenants_of` returns it; ConfigError if one has no shard key or no load."""
    load = F.col("load")
    known = F.col("shard_key").isNotNull() & (load >= 0) & (load < float("inf"))  # NaN is greater than all numbers
    found: Any = loads.agg(F.count("*").alias("all"), F.count_if(known).alias("known")).first()
    if found.known < found.all:
        raise ConfigError(
            f"{found.all - found.known:,} of {found.all:,} tenants have no shard_key, or a load that is no number "
            "from 0 on: mend these rows, or leave them out"
        )
    return int(found.all)


def survey_named(loads: DataFrame, tried: Sequence[Candidate], goal: Goal) -> list[Survey]:
    """Survey the tenants of a table as `tenants_of` returns it, with the shards that queues deal them.

    The tenants with the greatest loads are the noisy ones; they are left out of the survey.
    """
    top = loads.orderBy(F.desc("load"), "shard_key").limit(goal.load.noisy).collect()
    noisy = [bytes(row.shard_key) for row in top]
    if len(noisy) < goal.load.noisy:
        raise ConfigError(f"{len(noisy):,} tenants are fewer than the {goal.load.noisy:,} noisy ones")
    loud = frozenset(noisy)

    def work(surveys: list[Survey], batch: pa.RecordBatch) -> None:
        pairs = zip(batch.column("shard_key").to_pylist(), batch.column("load").to_pylist(), strict=True)
        quiet = [(key, load) for key, load in pairs if key not in loud]
        if quiet:
            named(surveys, [key for key, _ in quiet], np.array([load for _, load in quiet]), goal.load, noisy)

    return _surveyed(loads, tried, work)


def _surveyed(frame: DataFrame, tried: Sequence[Candidate], work: Callable[[list[Survey], Any], None]) -> list[Survey]:
    """Survey the rows in tasks, each for all candidates, and add up what the tasks found."""
    if not 1 <= len(tried) <= MAX_CANDIDATES:
        raise ConfigError(f"there must be 1 to {MAX_CANDIDATES} candidates, not {len(tried)}")

    def task(batches: Batches) -> Batches:
        surveys = [Survey(each) for each in tried]
        for batch in batches:
            work(surveys, batch)
        rows = [(at, *row) for at, each in enumerate(surveys) for row in each.rows()]
        yield pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS)

    summed = frame.mapInArrow(task, FOUND).groupBy("candidate", "found", "at")
    rows = summed.agg(F.sum("tenants").alias("tenants"), F.sum("load").alias("load")).collect()
    by_candidate: dict[int, list[tuple[str, int, float, float]]] = defaultdict(list)
    for row in rows:
        by_candidate[row.candidate].append((row.found, row["at"], row.tenants, row.load))
    if not rows:
        raise ConfigError("there are no quiet tenants to plan for")
    return [Survey.of(each, by_candidate[at]) for at, each in enumerate(tried)]


def judge(surveys: Sequence[Survey], goal: Goal, progress: Progress) -> tuple[Verdict, list[Verdict]]:
    """The verdict on the recommended candidate, and those on all; the reasons are added to the report."""
    verdicts = [judged(each, goal.load.noisy, goal.within) for each in surveys]
    chosen, reasons = recommended(verdicts, goal.isolation)
    report = progress.report
    report.figures |= {
        "tenants": chosen.tenants, "noisy": goal.load.noisy, "recommended": str(chosen.candidate),
        "candidates": [each.fields() | {"reason": reasons[each.candidate]} for each in verdicts],
    }  # fmt: skip
    ordered = sorted(verdicts, key=lambda each: each is not chosen)
    report.remarks += [f"{each.candidate}: {reasons[each.candidate]}" for each in ordered]
    return chosen, verdicts
