"""spark: a million rows into a queue and out of it through Spark, beside a redis-py pipeline and a naive writer.

CPU per row is measured of Spark's Python workers, of its JVM and of the server, from /proc and INFO. The fixed cost of
a job (planning starts several Python processes) is measured with a job of a few rows, and shown separately.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import redis

from benchmarks.processes import below, cpu_of
from benchmarks.report import Table, Target
from benchmarks.settings import Place
from shardq import Client
from shardq.ops.queue.opening import open_queue

PER_MESSAGE = 200  # rows, for each of `--messages`: a million by default
NAIVE = 20  # one row in so many is enough to know the naive writer
FEW = 100
CORES = (2, 1)
WITHOUT = ", window=0"  # a queue without an admission window
SORTED = ", sorted by shard key"


@dataclass(frozen=True)
class Run:
    """One job: rows, seconds, and µs of CPU per row beyond those of a job of a few rows."""

    rows: int
    seconds: float
    python: float = 0.0
    jvm: float = 0.0
    server: float = 0.0

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def run(place: Place) -> list[Table]:
    """Write and read tables."""
    rows = place.settings.messages * PER_MESSAGE
    rounds = max(2, place.settings.rounds // 2)
    runs: dict[str, list[Run]] = {}
    for cores in CORES:
        field = Field(place, cores, rows)
        for number in range(rounds + 1):
            for name, job in field.jobs().items():
                run = job()
                if number:  # the first warms the JVM up
                    runs.setdefault(name, []).append(run)
        field.close()
    return [_table("write", runs, place, rounds, 1.8, 2.0), _table("read", runs, place, rounds, 2.0, None)]


class Field:
    """A Spark session on so many cores, and the jobs that meet in it."""

    def __init__(self, place: Place, cores: int, rows: int) -> None:
        self.place, self.cores, self.rows = place, cores, rows
        self.spark = session(cores)
        self.server = redis.Redis.from_url(place.url, protocol=2)
        self.payload = "x" * max(1, place.settings.payload - 20)
        self.filled, self.window = "", 1

    def close(self) -> None:
        """End the session."""
        self.spark.stop()

    def jobs(self) -> dict[str, Callable[[], Run]]:
        """The jobs to compare; the references run only with the session on the most cores."""
        own = f"Spark local[{self.cores}]"
        found = {
            f"write: {own}": lambda: self.beyond(self.write),
            f"read: {own}, all columns": lambda: self.beyond(self.read),
            f"read: {own}, two columns": lambda: self.beyond(
                lambda rows: self.read(rows, "shard_key string, state string")
            ),
        }
        if self.cores == max(CORES):
            found |= {
                f"write: {own}{SORTED}": lambda: self.beyond(lambda rows: self.write(rows, by="shard_key")),
                f"write: {own}{WITHOUT}": lambda: self.beyond(lambda rows: self.write(rows, window=0)),
                f"read: {own}, all columns{WITHOUT}": lambda: self.beyond(lambda rows: self.read(rows, window=0)),
                "write: redis-py pipeline, one process": self.pipeline,
                "write: Spark, a call for each row": self.naive,
                "read: redis-py XRANGE, one process": self.ranges,
            }
        return found

    def beyond(self, job: Callable[[int], Run]) -> Run:
        """A job of all rows, without the CPU that one of a few rows takes."""
        small, large = job(FEW), job(self.rows)
        return Run(
            large.rows,
            large.seconds,
            *(max(0.0, getattr(large, part) * large.rows - getattr(small, part) * FEW) / large.rows for part in PARTS),
        )

    def frame(self, rows: int) -> Any:
        """Rows as a user's table has them."""
        from pyspark.sql import functions as F  # noqa: N812

        number = F.col("id")
        return self.spark.range(0, rows, 1, self.cores).select(
            F.concat(F.lit("tenant-"), number % self.place.settings.tenants).alias("shard_key"),
            F.concat(number.cast("string"), F.lit(self.payload)).cast("binary").alias("payload"),
        )

    def queue(self, window: int = 1) -> str:
        """A new queue, instead of the one before."""
        self.server.flushall()
        self.window = window
        name, chosen = uuid.uuid4().hex, self.place.settings
        with Client.from_url(self.place.url) as client:
            queue = client.queue(name, streams=chosen.streams, streams_per_shard=chosen.per_shard, window=window)
            client.run(open_queue(queue.state, queue.state.until()))
        return name

    def write(self, rows: int, window: int = 1, by: str = "") -> Run:
        """All rows into a new queue; each task's are sorted *by* a column, if one is named."""
        name, frame = self.queue(window), self.frame(rows)
        self.filled = name
        if by:
            frame = frame.sortWithinPartitions(by)
        save = frame.write.format("shardq").options(url=self.place.url, queue=name).mode("append").save
        return self.timed(rows, save)

    def read(self, rows: int, schema: str = "", window: int = 1) -> Run:
        """What `write` wrote: every payload is looked at."""
        if self.held() != rows or self.window != window:
            self.write(rows, window)
        reader = self.spark.read.format("shardq").options(url=self.place.url, subscribe=self.filled)
        frame = (reader.schema(schema) if schema else reader).load()
        column = "shard_key" if schema else "payload"
        return self.timed(rows, frame.selectExpr(f"sum(length({column}))", "count(state)").collect)

    def held(self) -> int:
        """How many messages the queue has."""
        with Client.from_url(self.place.url) as client:
            return client.queue(self.filled, create=True).len() if self.filled else 0

    def naive(self) -> Run:
        """A call of the client for each row, from Spark's tasks."""
        name, url, rows = self.queue(), self.place.url, self.rows // NAIVE

        def each(part: Any) -> None:
            with Client.from_url(url) as client:
                queue = client.queue(name, create=True)
                for row in part:
                    queue.write(bytes(row.payload), shard_key=row.shard_key)

        self.filled = ""
        return self.timed(rows, lambda: self.frame(rows).foreachPartition(each))

    def pipeline(self) -> Run:
        """XADD in pipelines of 1,000, to as many streams: no shards, no leases, no counts."""
        rows, streams, payload = self.rows, self.place.settings.streams, self.payload
        self.server.flushall()
        self.filled = ""

        def work() -> None:
            for first in range(0, rows, 1000):
                with self.server.pipeline(transaction=False) as pipe:
                    for number in range(first, min(rows, first + 1000)):
                        pipe.xadd(f"s{number % streams}", {"k": f"tenant-{number % 1000}", "b": f"{number}{payload}"})
                    pipe.execute()

        return self.timed(rows, work, own=True)

    def ranges(self) -> Run:
        """The same entries by XRANGE in pages of 1,000."""
        if not self.server.exists("s0"):
            self.pipeline()

        def work() -> None:
            for stream in range(self.place.settings.streams):
                after = "-"
                while page := self.server.xrange(f"s{stream}", after, "+", 1000):
                    after = f"({page[-1][0].decode()}"  # type: ignore[union-attr]

        return self.timed(self.rows, work, own=True)

    def timed(self, rows: int, work: Callable[[], Any], *, own: bool = False) -> Run:
        """Run the work once, and measure it; with `own` its Python code runs in this process."""
        before, started = self.cpu(own), time.perf_counter()
        work()
        seconds, after = time.perf_counter() - started, self.cpu(own)
        return Run(rows, seconds, *((end - start) / rows * 1e6 for start, end in zip(before, after, strict=True)))

    def cpu(self, own: bool) -> tuple[float, float, float]:
        """Seconds of CPU so far: Python workers (or this process), JVM, server."""
        info = self.server.info("cpu")
        jvm = self.spark.sparkContext._gateway.proc.pid
        python = time.process_time() if own else sum(map(cpu_of, below(jvm)))
        return python, cpu_of(jvm, children=False), float(info["used_cpu_user"] + info["used_cpu_sys"])


PARTS = ("python", "jvm", "server")


def session(cores: int) -> Any:
    """A session with Spark's own settings, but for what a server of one machine needs."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    from pyspark.sql import SparkSession

    from shardq.spark import register

    settings = {
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "2g",
        "spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
    }  # fmt: skip
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _table(
    kind: str, runs: dict[str, list[Run]], place: Place, rounds: int, least: float, server: float | None
) -> Table:
    chosen = {name.partition(": ")[2]: each for name, each in runs.items() if name.startswith(kind)}
    reference = next(name for name in chosen if "redis-py" in name)
    columns = "" if kind == "write" else ", all columns"
    own = f"Spark local[{max(CORES)}]{columns}"

    def times(name: str, part: str = "rate") -> float:
        pairs = zip(chosen[name], chosen[reference], strict=True)
        return float(median(getattr(run, part) / getattr(other, part) for run, other in pairs))

    rows = [
        (
            name,
            f"{median(run.rate for run in each):,.0f}",
            f"{times(name):.2f} x",
            *(f"{median(getattr(run, part) for run in each):.2f}" for part in PARTS),
        )
        for name, each in chosen.items()
    ]
    targets = []
    for name, where in ((own, ""), (own + SORTED, SORTED), (own + WITHOUT, WITHOUT)):
        if name not in chosen:
            continue
        python = median(run.python for run in chosen[name])
        targets += [
            Target(f"rows/s beside {reference}{where}", times(name), least),
            Target(f"CPU of Python per row{where}", python, 1.0, most=True, unit=" µs"),
        ]
        if server is not None:
            beside = f"CPU of the server per row, of {reference}{where}"
            targets.append(Target(beside, times(name, "server"), server, most=True))
    return Table(
        name=f"spark-{kind}",
        title=f"Spark: {kind} {chosen[own][0].rows:,} rows",
        context=place.described(f"{rounds} rounds after one that warms up"),
        columns=("", "rows/s", "of redis-py", "µs/row: Python", "JVM", "server"),
        rows=rows,
        targets=targets,
        data={name: [vars(run) for run in each] for name, each in chosen.items()},
    )
