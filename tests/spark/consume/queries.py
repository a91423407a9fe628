"""Streaming queries that consume, and a sink that keeps each micro-batch in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardq.client import Queue
from shardq.spark import settle_failed

Work = Callable[[Any, int], None]


def consuming_query(spark: Any, url: str, work: Work, checkpoint: Path, trigger: dict[str, Any], **options: Any) -> Any:
    """Start a query that consumes, and calls *work* with each micro-batch."""
    frame = spark.readStream.format("shardq").options(**{"url": url, "mode": "consume"} | options).load()
    writer = frame.writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def drain(spark: Any, url: str, work: Work, checkpoint: Path, **options: Any) -> None:
    """Consume what is there now, and end."""
    consuming_query(spark, url, work, checkpoint, {"availableNow": True}, **options).awaitTermination()


def supervise(
    spark: Any, url: str, work: Work, checkpoint: Path, over: Callable[[], bool], *, tell: bool = True, **options: Any
) -> None:
    """A streaming query that is started again whenever its job has failed."""
    from pyspark.errors import StreamingQueryException

    while not over():
        query = consuming_query(spark, url, work, checkpoint, {"processingTime": "0 seconds"}, **options)
        try:
            while not query.awaitTermination(1) and not over():
                pass
        except StreamingQueryException:
            if tell:
                settle_failed(query, url=url)
        finally:
            query.stop()


def is_done(queue: Queue) -> bool:
    """Whether nothing is left of a queue but dead letters."""
    stats = queue.stats()
    return stats.backlog + stats.in_flight + stats.delayed == 0


class Sink:
    """Writes each micro-batch to a folder that query and number name, in the place of what an earlier try wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, df: Any, batch: int) -> None:
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        df.write.mode("overwrite").parquet(str(self.folder / f"query={query}" / f"batch={batch}"))

    def rows(self, spark: Any) -> list[Any]:
        """All rows of all micro-batches."""
        return spark.read.parquet(str(self.folder)).collect()  # type: ignore[no-any-return]

    def numbers(self, spark: Any) -> list[int]:
        """The payloads, as sorted numbers."""
        return sorted(int(row.payload) for row in self.rows(spark))


def failing_once(flag: Path) -> Callable[[Any], Any]:
    """A task that passes rows on, and fails when it is the first of all tasks to have passed some."""

    def task(batches: Any) -> Any:
        for batch in batches:
            yield batch
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                continue
            raise RuntimeError("a task fails on purpose")

    return task
