"""The pipeline "load" for a landing folder: each file that comes is loaded once, by a streaming query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.spark import register
from shardq.spark.pipelines.earlier import Diverted
from shardq.spark.pipelines.files import SPLIT_SETTINGS, bundled, overridden
from shardq.spark.pipelines.folder import Folder
from shardq.spark.pipelines.inputs import following, wait
from shardq.spark.pipelines.load import save
from shardq.spark.pipelines.report import PipelineProgress
from shardq.spark.privates import file_system, hadoop_path


def landing_id(spark: SparkSession, path: str, queue: str) -> str:
    """The id under which the files of the folder *path* are written to *queue*, however the path is spelled.

    When the checkpoint is lost, Spark reads all files again, and Redis knows their rows by this id: so none is stored
    twice.
    """
    text = "\n".join((queue, _qualified(spark, path)))
    return f"landing-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _qualified(spark: SparkSession, path: str) -> str:
    place = hadoop_path(spark, path)
    return str(file_system(spark, place).makeQualified(place).toString())


CLAIM: Final = "shardq.json"
"""The file in a checkpoint that says which load it is of."""


@dataclass(slots=True)
class Landing:
    """A streaming query into *queue* that knows by its *checkpoint* which files are loaded.

    A batch is written like a load under *write_id*: by file, so it does not matter in which batch a file comes, also
    when Spark replays one. Without *every* (seconds) the query ends when all files that are there are loaded.
    """

    queue: str
    write_id: str
    checkpoint: str
    every: float | None = None
    rows: int = 0

    def claim(self, spark: SparkSession, path: str) -> None:
        """Note in the checkpoint that it follows the folder *path*. ConfigError if it follows another load.

        Spark would pass over the files that another queue got, or read files of another folder, without a word.
        """
        seen = Folder(spark, self.checkpoint)
        mine = {"folder": _qualified(spark, path), "queue": self.queue, "id": self.write_id}
        if seen.has(CLAIM) and seen.numbers("offsets"):
            known = json.loads("".join(seen.lines(CLAIM)))
            if known != mine:
                raise ConfigError(
                    f"{self.checkpoint} follows {known['folder']} into {known['queue']} as {known['id']}, not "
                    f"{mine['folder']} into {self.queue} as {self.write_id}: take another --checkpoint"
                )
        else:
            seen.write_json(mine, CLAIM)

    def follow(self, made: DataFrame, options: Mapping[str, str], progress: PipelineProgress) -> int:
        """Write the rows *made* by `messages`; returns how many rows this run took from files.

        *options* are those of format("shardq"), `url` among them.
        """

        def store(batch: DataFrame, number: int) -> None:
            register(batch.sparkSession)
            seen = Observation()
            counted = bundled(batch).observe(seen, F.count(F.lit(1)).alias("rows"))
            save(counted, self.write_id, {**options, "queue": self.queue})
            self.rows += int(seen.get.get("rows", 0))
            progress.say(f"batch {number}: {self.rows:,} rows so far")

        diverted = Diverted(self.write_id, options)
        with (
            overridden(made.sparkSession, SPLIT_SETTINGS),
            progress.step(f"following into {self.queue} as {self.write_id}"),
        ):
            query = following(made, store, f"load {self.queue}", self.checkpoint, self.every)
            try:
                wait(query)
            finally:
                progress.report.figures |= {"queue": self.queue, "id": self.write_id, "rows": self.rows}
        errors = f", or if they are no messages in {options['errorQueue']}" if "errorQueue" in options else ""
        progress.report.remarks.append(f"{self.rows:,} rows of new files are in {self.queue}{errors}, each once")
        diverted.tell(made, progress)
        return self.rows
