"""The pipeline "archive": the journal and the dead letters of queues as Parquet, by queue and day, each event once.

A micro-batch is written to a folder of its own, `batch=000000000012`, over whatever an earlier try left there: so a
batch that Spark replays is there once. (Spark's own file sink keeps a log of its files instead, and nothing may be
compacted beside that.) Compaction merges the folders of finished batches into one, `batch=000000000000-000000000012`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.spark.pipelines.report import Progress
from shardq.spark.schema import table_schema

TABLES: Final = {"journal": "time", "dead": "died_at"}
"""What is archived, and by which column's day."""

BATCH: Final = re.compile(r"batch=(\d{12})(?:-(\d{12}))?")
CHECKPOINTS: Final = "_checkpoints"


@dataclass(slots=True)
class Archive:
    """A folder (of any file system that Spark knows) with the tables `journal` and `dead`."""

    spark: SparkSession
    path: str
    _fs: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = self.path.rstrip("/")
        jvm = self.spark._jvm  # the only way to Hadoop's file systems
        settings = self.spark._jsparkSession.sessionState().newHadoopConf()
        self._fs = jvm.org.apache.hadoop.fs.Path(self.path).getFileSystem(settings)

    def table(self, name: str) -> DataFrame:
        """What is archived of *name*, journal or dead, each event once, also while a compaction is half done."""
        if not self.live(name):
            raise ConfigError(f"there is no archive of {name} in {self.path}")
        return self._read(name, self.live(name))

    def _read(self, name: str, folders: Iterable[str]) -> DataFrame:
        """With types of our own: Spark would take a queue called 007 for the number 7."""
        schema = table_schema(name).add("day", "date")
        reader = self.spark.read.schema(schema).option("basePath", f"{self.path}/{name}")
        return reader.parquet(*(f"{self.path}/{name}/{each}" for each in folders)).drop("batch")

    def live(self, name: str) -> list[str]:
        """The folders of batches that no compacted one covers."""
        ranges = self._ranges(name)
        return [each for each, span in ranges.items() if not any(covers(other, span) for other in ranges.values())]

    def _ranges(self, name: str) -> dict[str, tuple[int, int]]:
        found = {}
        for each in self._listed(name):
            if match := BATCH.fullmatch(each):
                found[each] = (int(match[1]), int(match[2] or match[1]))
        return dict(sorted(found.items()))

    def _listed(self, name: str) -> list[str]:
        path = self._path(name)
        return [each.getPath().getName() for each in self._fs.listStatus(path)] if self._fs.exists(path) else []

    def _path(self, *parts: str) -> Any:
        return self.spark._jvm.org.apache.hadoop.fs.Path("/".join((self.path, *parts)))

    def finished(self, name: str) -> int:
        """The number of the last batch that Spark will not replay; -1 when there is none."""
        commits = [int(each) for each in self._listed(f"{CHECKPOINTS}/{name}/commits") if each.isdigit()]
        return max(commits, default=-1)

    def compact(self, name: str, tasks: int = 8) -> int:
        """Merge the folders of finished batches into one, with one file for each queue and day; how many they were.

        Nothing may be archived meanwhile. Interrupted, it is completed by the next one.
        """
        self._fs.delete(self._path(name, "_compacting"), True)
        self._sweep(name)
        last = self.finished(name)
        ranges = {each: span for each, span in self._ranges(name).items() if span[1] <= last}
        if len(ranges) < 2:
            return 0
        low, high = min(span[0] for span in ranges.values()), max(span[1] for span in ranges.values())
        merged = f"batch={low:012d}-{high:012d}"
        spread = self._read(name, ranges).repartition(tasks, "queue", "day")
        spread = spread.sortWithinPartitions("queue", "day", TABLES[name])
        spread.write.partitionBy("queue", "day").parquet(f"{self.path}/{name}/_compacting/{merged}")
        if not self._fs.rename(self._path(name, "_compacting", merged), self._path(name, merged)):
            raise ConfigError(f"{self.path}/{name}/{merged} cannot be put in place: is something there already?")
        self._sweep(name)
        self._fs.delete(self._path(name, "_compacting"), True)
        return len(ranges)

    def _sweep(self, name: str) -> None:
        """Remove the folders that a compacted one covers."""
        live = set(self.live(name))
        for each in self._ranges(name):
            if each not in live:
                self._fs.delete(self._path(name, each), True)

    def follow(
        self,
        name: str,
        queues: Sequence[str],
        options: Mapping[str, str],
        progress: Progress,
        *,
        every: float | None = None,
    ) -> int:
        """Archive what is new in *name* of the *queues*; how many rows that were. Every so many seconds, until stopped.

        *options* are those of format("shardq"), `url` among them. A query that was killed goes on where it was.
        """
        source = self.spark.readStream.format("shardq").options(**options)
        source = source.option("subscribe", ",".join(queues)).option("state", name)
        rows = source.option("startingOffsets", "earliest").load()
        total = 0
        progress.sofar = lambda: f"{total:,} rows"

        def store(batch: DataFrame, number: int) -> None:
            nonlocal total
            seen = Observation()
            dated = batch.withColumn("day", F.to_date(TABLES[name])).observe(seen, F.count(F.lit(1)).alias("rows"))
            folder = f"{self.path}/{name}/batch={number:012d}"
            dated.write.mode("overwrite").partitionBy("queue", "day").parquet(folder)
            count = int(seen.get.get("rows", 0))
            total += count
            progress.say(f"{name}: batch {number}, {count:,} rows")

        trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
        writer = rows.writeStream.foreachBatch(store).option("checkpointLocation", f"{self.path}/{CHECKPOINTS}/{name}")
        query = writer.queryName(f"archive {name}").trigger(**trigger).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return total


def covers(wide: tuple[int, int], narrow: tuple[int, int]) -> bool:
    """Whether the batches *wide* hold *narrow* and more."""
    return wide != narrow and wide[0] <= narrow[0] and narrow[1] <= wide[1]
