"""A program that consumes, and has trouble: `python -m tests.spark.consume.job TROUBLE MASTER URL QUEUE FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shardq import Client
from tests.spark.consume.queries import Sink, drain, is_done, supervise
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


def refusing(batches: Iterator[Any]) -> Iterator[Any]:
    """A task that cannot take one payload."""
    for batch in batches:
        if b"77" in batch.column("payload").to_pylist():
            raise ValueError("no number")
        yield batch


def consume_all(spark: Any, url: str, name: str, folder: str, sink: Sink) -> None:
    """Consume in micro-batches of 500 until nothing is left, whatever fails."""

    def work(df: Any, batch: int) -> None:
        print("working", batch, flush=True)
        sink(df.mapInArrow(refusing, df.schema), batch)

    with Client.from_url(url) as client:
        queue = client.queue(name, create=True)
        over = partial(is_done, queue)
        supervise(spark, url, work, Path(folder, "checkpoint"), over, subscribe=name, maxInFlight=500, visibility=120)


def main() -> None:
    """Consume what is there in micro-batches of 5,000. With trouble, in the second one; or with poison in one."""
    trouble, master, url, queue, folder = sys.argv[1:]
    spark, sink = session(master, {"spark.executor.memory": "512m"}), Sink(Path(folder, "sink"))

    def work(df: Any, batch: int) -> None:
        second = batch == 1
        sink(df.mapInArrow(killing(folder), df.schema) if second and trouble == "executor" else df, batch)
        if second and trouble == "driver":
            Path(folder, "written").touch()
            eventually(Path(folder, "never").exists, 300)

    if trouble == "poison":
        consume_all(spark, url, queue, folder, sink)
    else:
        drain(spark, url, work, Path(folder, "checkpoint"), subscribe=queue, maxInFlight=5000, visibility=120)
    print("done", len(sink.rows(spark)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
