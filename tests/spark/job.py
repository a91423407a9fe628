"""A Spark program of its own, for what needs several executors or a driver that can be killed: see `main`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.spark.conftest import SETTINGS
from tests.waiting import eventually

ROWS = 24_000


def session(master: str, settings: dict[str, str]) -> Any:
    """A session on *master* in which the format is known."""
    from pyspark.sql import SparkSession

    from shardq.spark import register

    builder = SparkSession.builder.master(master).appName("shardq test job")
    for name, value in (SETTINGS | settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def executor() -> int:
    """The process id of the executor that this Python worker belongs to: the daemon's parent."""
    daemon = os.getppid()
    pid = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return pid


def troubled(payload: bytes, trouble: str, marks: str) -> bytes:
    """The task with row 4,000 has trouble when it is tried first: its executor is killed, or it waits for a copy.

    Or that with the last row fails, each time: others come before it.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if trouble == "fail":
        if payload == str(ROWS - 1).encode():
            raise RuntimeError("made to fail")
    elif payload == b"4000" and context is not None:
        if context.attemptNumber():
            Path(marks, "again").touch()
        elif trouble == "kill":
            os.kill(executor(), signal.SIGKILL)
        else:
            eventually(Path(marks, "again").exists, 300)
    return payload


def load(spark: Any, url: str, queue: str, trouble: str, marks: str) -> None:
    """Write ROWS rows, with *trouble* on the way; then print how many the queue holds."""
    from pyspark.sql import functions as F  # noqa: N812

    from tests.spark.rows import numbered

    checked = F.udf(lambda payload: troubled(payload, trouble, marks), "binary", useArrow=False)
    frame = numbered(spark, ROWS, partitions=8).withColumn("payload", checked("payload"))
    frame.write.format("shardq").options(url=url, queue=queue, chunkSize="100").mode("append").save()
    held = spark.read.format("shardq").options(url=url, subscribe=queue, partitions="4").load()
    print("held", held.where("state = 'backlog'").select("payload").distinct().count(), held.count(), flush=True)


def archive(spark: Any, url: str, queue: str, folder: str) -> None:
    """Archive the journal of *queue* in small batches until all is there."""
    frame = spark.readStream.format("shardq").options(
        url=url, subscribe=queue, state="journal", startingOffsets="earliest", maxOffsetsPerTrigger="500"
    )
    writer = frame.load().writeStream.format("parquet").option("path", f"{folder}/events")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.read.parquet(f"{folder}/events")
    print("archived", rows.select("number").distinct().count(), rows.count(), flush=True)


def main() -> None:
    """`python -m tests.spark.job kill|copy|fail|archive MASTER URL QUEUE FOLDER`."""
    task, master, url, queue, folder = sys.argv[1:]
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    spark = session(master, {"spark.executor.memory": "512m"} | (speculation if task == "copy" else {}))
    if task == "archive":
        archive(spark, url, queue, folder)
    else:
        load(spark, url, queue, task, folder)
    spark.stop()


if __name__ == "__main__":
    main()
