"""A program that consumes, and has trouble: `python -m tests.spark.consume.job TROUBLE MASTER URL QUEUE FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark.consume.queries import Sink, drain
from tests.spark.job import executor, session
from tests.waiting import eventually


def killing(marks: str) -> Any:
    """What kills the executor of the first task of all that has passed some rows on."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            try:
                Path(marks, "killed").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(executor(), signal.SIGKILL)

    return task


def main() -> None:
    """Consume what is there in micro-batches of 5,000. With trouble, in the second one."""
    trouble, master, url, queue, folder = sys.argv[1:]
    spark, sink = session(master, {"spark.executor.memory": "512m"}), Sink(Path(folder, "sink"))

    def work(df: Any, batch: int) -> None:
        second = batch == 1
        sink(df.mapInArrow(killing(folder), df.schema) if second and trouble == "executor" else df, batch)
        if second and trouble == "driver":
            Path(folder, "written").touch()
            eventually(Path(folder, "never").exists, 300)

    drain(spark, url, work, Path(folder, "checkpoint"), subscribe=queue, maxInFlight=5000, visibility=120)
    print("done", len(sink.rows(spark)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
