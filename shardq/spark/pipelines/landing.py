"""The pipeline "load" for a landing folder: each file that comes is loaded once, by a streaming query."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from shardq.spark.pipelines.files import overridden
from shardq.spark.pipelines.report import Progress

PACKED: Final = {
    "spark.sql.files.maxPartitionBytes": str(64 * 1024 * 1024),
    "spark.sql.files.openCostInBytes": str(256 * 1024),
    "spark.sql.files.minPartitionNum": "16",
}
"""How the files of a batch are put into tasks. A batch that is replayed has the same files, and rows are numbered by
task: so the number of cores, Spark's default for minPartitionNum, must have no say in it."""

LOOK: Final = 1.0
"""Every so many seconds it is written down which batches are done; Spark keeps the last hundred."""


def landing_id(spark: SparkSession, path: str, queue: str) -> str:
    """The id under which the files of the folder *path* are written to *queue*, however the path is spelled.

    It is no matter of the checkpoint: when that is lost, Spark counts batches from 0, which Redis then refuses under
    this id. So no file is loaded twice in silence.
    """
    place = spark._jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    text = "\n".join((queue, system.makeQualified(place).toString()))
    return f"landing-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class Landing:
    """A streaming query into *queue* that knows by its *checkpoint* which files are loaded.

    Without *every* (seconds) it ends when all files that are there are loaded.
    """

    queue: str
    write_id: str
    checkpoint: str
    every: float | None = None
    _rows: dict[int, int] = field(default_factory=dict)

    def follow(self, made: DataFrame, options: Mapping[str, str], progress: Progress) -> int:
        """Write the rows *made* by `messages`; returns how many rows this run took from files.

        *options* are those of format("shardq"), `url` among them.
        """
        trigger: dict[str, Any] = (
            {"availableNow": True} if self.every is None else {"processingTime": f"{self.every} seconds"}
        )
        progress.report.figures |= {"queue": self.queue, "id": self.write_id, "rows": 0}
        with overridden(made.sparkSession, PACKED), progress.step(f"following into {self.queue} as {self.write_id}"):
            progress.sofar = lambda: f"{self.rows:,} rows in {len(self._rows):,} batches"
            writer = made.writeStream.format("shardq").options(**options).option("queue", self.queue)
            writer = writer.option("writeId", self.write_id).option("checkpointLocation", self.checkpoint)
            query = writer.queryName(f"load {self.queue}").trigger(**trigger).start()
            try:
                while not query.awaitTermination(LOOK):
                    self._note(query)
            finally:
                query.stop()
                self._note(query)
                progress.report.figures |= {"rows": self.rows, "batches": len(self._rows)}
        progress.report.remarks.append(f"{self.rows:,} rows of new files are in {self.queue}, each once")
        return self.rows

    @property
    def rows(self) -> int:
        """How many rows this run took from files."""
        return sum(self._rows.values())

    def _note(self, query: StreamingQuery) -> None:
        for each in query.recentProgress:
            if each.numInputRows:
                self._rows[each.batchId] = each.numInputRows
