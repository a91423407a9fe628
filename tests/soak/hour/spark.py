"""A Spark job of the hour that works through a queue, in long runs alone: a session takes long to start.

python -m tests.soak.hour.spark URL FOLDER NAME CHECKPOINT
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from shardq.spark import settle_failed, settle_last
from tests.soak.hour.notes import Notes
from tests.soak.hour.world import SPARKED
from tests.spark.consume.queries import consuming_query
from tests.spark.job import session

IN_FLIGHT: Final = 200
"""Messages that a micro-batch holds at most."""

DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {"m": msgspec.msgpack.decode, "j": msgspec.json.decode}
"""How a value is read, by its codec."""


class Work:
    """What is done with each micro-batch: its messages are noted. Spark acks them when it has committed it."""

    def __init__(self, notes: Notes) -> None:
        self._notes, self._numbers = notes, itertools.count()

    def __call__(self, df: Any, batch: int) -> None:
        """Note what came, and that it is about to be acked. Nobody believes in these leases but Spark."""
        rows, at = df.select("message_id", "payload", "codec", "count").collect(), time.monotonic()
        for row in rows:
            number, value = next(self._numbers), DECODERS[row["codec"]](bytes(row["payload"]))
            self._notes.add(
                "got", by=self._notes.name, n=number, id=row["message_id"], value=value, count=row["count"],
                asked=0.0, at=at, until=at, ends=at + 3600, batch=batch,
            )  # fmt: skip
            self._notes.add("settling", by=self._notes.name, n=number, verb="ack", at=time.monotonic())


def main(url: str, folder: str, name: str, checkpoint: str) -> None:
    """Work until SIGTERM; a query that fails is started again."""
    from pyspark.errors import StreamingQueryException

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    work, spark = Work(Notes(Path(folder), f"{name}-{SPARKED}", SPARKED)), session("local[1]", {})
    options = {"subscribe": SPARKED, "maxInFlight": IN_FLIGHT, "visibility": 30, "timeout": 30}
    while not stop.is_set():
        query = consuming_query(spark, url, work, Path(checkpoint), {"processingTime": "1 second"}, **options)
        try:
            while not query.awaitTermination(1) and not stop.is_set():
                pass
        except StreamingQueryException as error:
            print(error, file=sys.stderr, flush=True)
            settle_failed(query, url=url)
        else:
            query.stop()
            settle_last(query, url=url)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
