"""pipelines: a plan for ten million tenants, and the fairness of two million journal events, on Spark.

A plan is compared with the same survey of fewer tenants in one process without Spark, a fairness report with a plain
count of the same events by shard key. The first round warms the JVM up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import below, cpu_of, forget_peaks, peak
from benchmarks.report import Table, Target
from benchmarks.settings import Place
from benchmarks.spark import CORES, session

TENANTS = 2000  # for each of `--messages`: ten million by default
EVENTS = 400  # two million
FEWER = 20  # the process alone surveys one tenant in so many
KEYS = 10_000
NOISY = 20
NAMED = ((64, 4), (256, 3))
KINDS = ("written", "delivered", "acked")
WINDOW = 60
SPAN = 3600  # seconds that the events take
ROUNDS = 2


@dataclass(frozen=True)
class Run:
    """One job: how many things, seconds, CPU seconds of Python and the JVM, bytes at most, seconds of its steps."""

    count: int
    seconds: float
    python: float
    jvm: float
    memory: int
    steps: dict[str, float] = field(default_factory=dict)


def run(place: Place) -> list[Table]:
    """The tables of both."""
    with tempfile.TemporaryDirectory(prefix="shardq-bench-") as folder:
        ground = Ground(place, Path(folder))
        try:
            runs = {name: [job() for _ in range(ROUNDS + 1)][1:] for name, job in ground.jobs().items()}
        finally:
            ground.spark.stop()
    alone = [ground.alone() for _ in range(ROUNDS)]
    return [plan_table(place, runs, alone), fairness_table(place, runs)]


class Ground:
    """A Spark session on all cores of the benchmark, and tables to work on."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.tenants, self.events = place.settings.messages * TENANTS, place.settings.messages * EVENTS
        self.spark = session(max(CORES))
        self.spark.conf.set("spark.sql.shuffle.partitions", 2 * max(CORES))
        self.loads, self.journal = (str(folder / name) for name in ("loads", "journal"))
        self.spark.range(0, self.tenants, 1, 8).selectExpr(
            "concat('tenant-', id) as shard_key", "1 / (id + 1) as load"
        ).write.parquet(self.loads)
        history(self.spark, self.events // 3).write.parquet(self.journal)

    def jobs(self) -> dict[str, Callable[[], Run]]:
        """The jobs by name."""
        return {"assumed": self.assumed, "named": self.named, "fairness": self.fairness, "count": self.count}

    def assumed(self) -> Run:
        """Tenants with random shards, under the candidates that `shardq pipeline plan` would try."""
        from shardq.spark.pipelines.planning.pipeline import candidates, survey_assumed

        tried = candidates(self.tenants, goal())
        return self.timed(self.tenants, lambda: survey_assumed(self.spark, self.tenants, tried, goal()))

    def named(self) -> Run:
        """Those of a table, with the shards that queues deal them."""
        from shardq.spark.pipelines.planning.pipeline import survey_named, tenants_of
        from shardq.spark.pipelines.planning.survey import Candidate

        tried = [Candidate(*each) for each in NAMED]
        table = tenants_of(self.spark.read.parquet(self.loads))
        return self.timed(self.tenants, lambda: survey_named(table, tried, goal()))

    def fairness(self) -> Run:
        """The whole report, with tables, picture and page."""
        from shardq.spark.pipelines.fairness.pipeline import Request
        from shardq.spark.pipelines.fairness.pipeline import run as judged
        from shardq.spark.pipelines.report import Progress, Report

        progress = Progress(Report("fairness"))
        with tempfile.TemporaryDirectory() as out:
            request = Request(WINDOW, (64, 4), None, Path(out))
            events = self.spark.read.parquet(self.journal)
            run = self.timed(events.count(), lambda: judged(events, request, progress))
        steps = {name.replace(out, "files"): seconds for name, seconds in progress.report.seconds.items()}
        return Run(run.count, run.seconds, run.python, run.jvm, run.memory, steps)

    def count(self) -> Run:
        """What Spark needs to read the events and to group them once."""
        grouped = self.spark.read.parquet(self.journal).groupBy("shard_key", "kind").count()
        return self.timed(self.events // 3 * 3, grouped.collect)

    def alone(self) -> float:
        """Tenants per second of the survey of assumed ones in this process, without Spark."""
        from shardq.spark.pipelines.planning.pipeline import candidates
        from shardq.spark.pipelines.planning.survey import CHUNK, Survey, assumed

        surveys = [Survey(each) for each in candidates(self.tenants, goal())]
        count, begun = self.tenants // FEWER, time.perf_counter()
        for first in range(0, count, CHUNK):
            assumed(surveys, first, min(CHUNK, count - first), goal().load, 1.0, 0)
        return count / (time.perf_counter() - begun)

    def timed(self, count: int, work: Callable[[], Any]) -> Run:
        """Run the work once, and measure it."""
        jvm = self.spark.sparkContext._gateway.proc.pid
        forget_peaks([jvm, *below(jvm)])
        before, begun = self.cpu(jvm), time.perf_counter()
        work()
        seconds, after = time.perf_counter() - begun, self.cpu(jvm)
        python, java = (
            max(0.0, end - start) for start, end in zip(before, after, strict=True)
        )  # workers may have ended
        return Run(count, seconds, python, java, peak([jvm, *below(jvm)]))

    @staticmethod
    def cpu(jvm: int) -> tuple[float, float]:
        """Seconds of CPU so far, of Python's workers and of the JVM."""
        return sum(map(cpu_of, below(jvm))), cpu_of(jvm, children=False)


def goal() -> Any:
    """What the plan is to reach: that of `shardq pipeline plan` without options."""
    from shardq.spark.pipelines.planning.model import Load
    from shardq.spark.pipelines.planning.pipeline import Goal

    return Goal(Load(NOISY))


def history(spark: Any, messages: int) -> Any:
    """A journal: messages of 10,000 tenants over an hour, each written, delivered and acked; few tenants write most."""
    from pyspark.sql import functions as F  # noqa: N812

    written = 1_760_000_000_000 + F.col("id") * (SPAN * 1000) / messages
    key = F.floor(F.pow(F.lit(float(KEYS)), F.rand(1)))
    rows = spark.range(0, messages, 1, 2 * max(CORES)).select(
        "id", key.alias("key"), F.floor(written).alias("ms"), (F.rand(2) * 2000).alias("delay")
    )
    kinds = [F.struct(F.lit(at).alias("at"), F.lit(kind).alias("kind")) for at, kind in enumerate(KINDS)]
    at = F.col("event.at")
    time = F.col("ms") + F.when(at > 0, F.col("delay") + 5 * at).otherwise(0)
    return rows.withColumn("event", F.explode(F.array(*kinds))).select(
        F.lit("jobs").alias("queue"), (3 * F.col("id") + at).alias("number"),
        F.timestamp_millis(time.cast("long")).alias("time"), F.col("event.kind").alias("kind"),
        F.concat_ws("-", "ms", "id", F.lit("0")).alias("message_id"),
        F.concat(F.lit("tenant-"), "key").alias("shard_key"),
        F.lit(0).alias("stream"), F.when(at > 0, 1).otherwise(0).alias("count"),
        F.lit(None).cast("timestamp").alias("due"), F.lit("host-1").alias("client"),
    )  # fmt: skip


def _middle(runs: list[Run], name: str) -> float:
    return float(median(getattr(run, name) for run in runs))


def _row(name: str, runs: list[Run]) -> tuple[str, ...]:
    seconds, count = _middle(runs, "seconds"), runs[0].count
    cpu = [f"{_middle(runs, part):.1f}" for part in ("python", "jvm")]
    return name, f"{seconds:.1f}", f"{count / seconds:,.0f}", *cpu, f"{_middle(runs, 'memory') / 2**20:,.0f}"


COLUMNS = ("", "s", "/s", "CPU s: Python", "JVM", "MiB at most")


def plan_table(place: Place, runs: dict[str, list[Run]], alone: list[float]) -> Table:
    """Of the surveys, and of one in a process `alone`, in tenants per second."""
    tried = ", ".join(f"{streams} x {width}" for streams, width in NAMED)
    assumed = runs["assumed"]
    rate = float(median(alone))
    rows = [
        _row("assumed tenants, six candidates", assumed),
        _row(f"tenants of a table, {tried}", runs["named"]),
        ("assumed, one process without Spark", f"{assumed[0].count / rate:.1f}", f"{rate:,.0f}", "", "", ""),
    ]
    return Table(
        name="pipelines-plan",
        title=f"Spark: a plan for {assumed[0].count:,} tenants",
        context=_context(place),
        columns=COLUMNS,
        rows=rows,
        targets=[
            Target(
                "tenants/s beside one process without Spark", assumed[0].count / _middle(assumed, "seconds") / rate, 1
            )
        ],
        data={name: [vars(run) for run in runs[name]] for name in ("assumed", "named")} | {"alone": alone},
    )


def fairness_table(place: Place, runs: dict[str, list[Run]]) -> Table:
    """Of the report, step by step."""
    found, count = runs["fairness"], runs["count"]
    steps = {name: median(run.steps[name] for run in found) for name in found[0].steps}
    return Table(
        name="pipelines-fairness",
        title=f"Spark: the fairness of {found[0].count:,} journal events, {SPAN // WINDOW} windows",
        context=_context(place),
        columns=COLUMNS,
        rows=[
            _row("the report", found),
            *((f"- {name}", f"{seconds:.1f}", "", "", "", "") for name, seconds in steps.items()),
            _row("a count by shard key and kind", count),
        ],
        data={name: [vars(run) for run in runs[name]] for name in ("fairness", "count")},
    )


def _context(place: Place) -> str:
    return place.described(f"local[{max(CORES)}], the median of {ROUNDS} rounds after one that warms up")
