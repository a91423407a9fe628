"""The pipeline "archive": the journal and the dead letters of queues as Parquet, by queue and day, each event once.

A micro-batch is written to a folder of its own, `batch=000000000012`, over whatever an earlier try left there: so a
batch that Spark replays is there once. (Spark's own file sink keeps a log of its files instead, and nothing may be
compacted beside that.) Compaction merges the folders of finished batches into one, `batch=000000000000-000000000012`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.jobs.ranges import Range, ranges_of, uncovered
from shardq.spark.pipelines.checkpoint import Checkpoint
from shardq.spark.pipelines.folder import Folder
from shardq.spark.pipelines.inputs import following, wait
from shardq.spark.pipelines.report import PipelineProgress
from shardq.spark.schema import table_schema

TABLES: Final = {"journal": "time", "dead": "died_at"}
"""The archived tables, and by which column's day."""

DONE: Final = "_SUCCESS"
"""The file that Spark writes last into a folder."""


@dataclass(slots=True)
class Archive:
    """A folder (of any file system that Spark knows) with the tables `journal` and `dead`."""

    spark: SparkSession
    path: str
    _folder: Folder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._folder = Folder(self.spark, self.path)
        self.path = self._folder.path

    def table(self, name: str) -> DataFrame:
        """The archived events of *name*, journal or dead, each once, also while a compaction is half done."""
        if not self.live(name):
            raise ConfigError(f"there is no archive of {name} in {self.path}")
        return self._read(name, self.live(name))

    def _read(self, name: str, folders: Iterable[str]) -> DataFrame:
        """With types of our own: Spark would take a queue called 007 for the number 7."""
        schema = table_schema(name).add("day", "date")
        reader = self.spark.read.schema(schema).option("basePath", self._folder.to(name))
        return reader.parquet(*(self._folder.to(name, each) for each in folders)).drop("batch")

    def live(self, name: str) -> list[str]:
        """The folders of batches that no compacted one covers."""
        return uncovered(self._ranges(name))

    def _ranges(self, name: str) -> dict[str, Range]:
        return ranges_of("batch", self._folder.names(name))

    def _newest(self, name: str) -> int:
        """The number of the newest batch that has a folder; -1 when there is none."""
        return max((span[1] for span in self._ranges(name).values()), default=-1)

    def finished(self, name: str) -> int:
        """The number of the last batch that Spark will not replay; -1 when there is none."""
        return Checkpoint.newest(self._folder, name).finished

    def check(self, name: str, queues: Sequence[str] = ()) -> None:
        """ConfigError unless the checkpoint continues behind the archived events, for *queues*, too.

        If it does not, batches that are there would be overwritten, or rows archived twice.
        """
        checkpoint = Checkpoint.newest(self._folder, name)
        if (newest := self._newest(name)) > checkpoint.planned:
            self._refuse(name, f"has batches up to {newest}, but the checkpoint {checkpoint.path} is gone or older")
        known = checkpoint.queues() if queues else frozenset()
        for queue in queues:
            if queue not in known and self._folder.has(name, "batch=*", self._folder.partition("queue", queue)):
                self._refuse(name, f"has rows of queue {queue!r}, but its checkpoint does not say up to where")

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise ConfigError(
            f"{self._folder.to(name)} {why}: with --adopt it continues behind that; or archive to another folder"
        )

    def adopt(self, name: str, queues: Sequence[str]) -> None:
        """Begin a new checkpoint behind the archived events, unless the checkpoint is one that continues there.

        ConfigError if nobody knows whether the newest batch is whole.
        """
        try:
            self.check(name, queues)
        except ConfigError:
            self._check_whole(name)
            Checkpoint.begin(self._folder, name, self._newest(name) + 1, self._points(name))

    def _check_whole(self, name: str) -> None:
        newest = max(self._ranges(name).items(), key=lambda each: each[1][1])[0]
        if not self._folder.has(name, newest, DONE):
            raise ConfigError(
                f"{self._folder.to(name, newest)} was not finished, as it has no {DONE}: remove it, then its rows are "
                f"read again; or if you know that it is whole, make an empty file {DONE} there"
            )

    def _points(self, name: str) -> dict[str, Any]:
        """How far each queue is archived, as marks of offsets."""
        if name == "journal":
            newest = F.max(F.struct(F.col("number").alias("to"), F.unix_millis("time").alias("time")))
        else:
            halves = F.split("entry_id", "-")
            order = halves[0].cast("bigint").alias("time"), halves[1].cast("decimal(20)"), F.col("entry_id").alias("to")
            newest = F.max(F.struct(*order))
        rows = self.table(name).groupBy("queue").agg(newest.alias("mark")).collect()
        return {row.queue: {"to": row.mark.to, "time": row.mark.time} for row in rows}

    def compact(self, name: str, tasks: int = 8) -> int:
        """Merge the folders of finished batches into one, with one file for each queue and day; how many they were.

        Nothing may be archived meanwhile. Interrupted, it is completed by the next one.
        """
        self.check(name)
        self._folder.delete(name, "_compacting")
        self._sweep(name)
        last = self.finished(name)
        ranges = {each: span for each, span in self._ranges(name).items() if span[1] <= last}
        if len(ranges) < 2:
            return 0
        low, high = min(span[0] for span in ranges.values()), max(span[1] for span in ranges.values())
        merged = f"batch={low:012d}-{high:012d}"
        spread = self._read(name, ranges).repartition(tasks, "queue", "day")
        spread = spread.sortWithinPartitions("queue", "day", TABLES[name])
        spread.write.partitionBy("queue", "day").parquet(self._folder.to(name, "_compacting", merged))
        if not self._folder.rename((name, "_compacting", merged), (name, merged)):
            raise ConfigError(f"{self._folder.to(name, merged)} cannot be put in place: is something there already?")
        self._sweep(name)
        self._folder.delete(name, "_compacting")
        return len(ranges)

    def _sweep(self, name: str) -> None:
        """Remove the folders that a compacted one covers."""
        live = set(self.live(name))
        for each in self._ranges(name):
            if each not in live:
                self._folder.delete(name, each)

    def follow(
        self,
        name: str,
        queues: Sequence[str],
        options: Mapping[str, str],
        progress: PipelineProgress,
        *,
        every: float | None = None,
        adopt: bool = False,
        pattern: str = "",
    ) -> int:
        """Archive what is new in *name* of the *queues*; how many rows that were. Every *every* seconds, until stopped.

        *options* are those of format("shardq"), `url` among them. A query that was killed continues where it was. If
        its checkpoint is gone, that is a ConfigError, or with *adopt* it continues behind the archived events. With a
        *pattern*, others that match and come later than *queues* are archived, too.
        """
        if adopt:
            self.adopt(name, queues)
        self.check(name, queues)
        checkpoint = Checkpoint.newest(self._folder, name)
        source = self.spark.readStream.format("shardq").options(**options)
        named = {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(queues)}
        source = source.options(**named, state=name)
        rows = source.option("startingOffsets", checkpoint.starting(list(queues))).load()
        total = 0
        progress.sofar = lambda: f"{total:,} rows"

        def store(batch: DataFrame, number: int) -> None:
            nonlocal total
            seen = Observation()
            dated = batch.withColumn("day", F.to_date(TABLES[name])).observe(seen, F.count(F.lit(1)).alias("rows"))
            folder = self._folder.to(name, f"batch={checkpoint.base + number:012d}")
            dated.write.mode("overwrite").partitionBy("queue", "day").parquet(folder)
            count = int(seen.get.get("rows", 0))
            total += count
            progress.say(f"{name}: batch {checkpoint.base + number}, {count:,} rows")

        wait(following(rows, store, f"archive {name}", checkpoint.path, every))
        return total


def archived(spark: SparkSession, path: str) -> DataFrame | None:
    """The table at *path*, such as `archive/journal`, as `Archive.table` reads it; None if no archive is there."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if name not in TABLES:
        return None
    archive = Archive(spark, folder or ("/" if path.startswith("/") else "."))
    return archive.table(name) if archive.live(name) else None
