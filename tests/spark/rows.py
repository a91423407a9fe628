"""DataFrames of numbered rows, ways to write them, and what a queue holds after that."""

from __future__ import annotations

from typing import Any

from shardq.client import Delivery, Queue


def numbered(spark: Any, count: int, partitions: int = 2, tenants: int = 50) -> Any:
    """Rows whose payload is their number, as bytes, of some tenants."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    number = F.col("id")
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("tenant-"), number % tenants).alias("shard_key"),
        number.cast("string").cast("binary").alias("payload"),
    )


def write(frame: Any, queue: Queue, url: str, **options: object) -> None:
    """Write *frame* to *queue*."""
    named = {"url": url, "queue": queue.name, **{name: str(value) for name, value in options.items()}}
    frame.write.format("shardq").options(**named).mode("append").save()


def drained(queue: Queue) -> list[Delivery]:
    """All that can be read of *queue* now; it is acked."""
    found: list[Delivery] = []
    while some := queue.read_many(1000):
        queue.ack_many(some)
        found += some
    return found


def numbers(queue: Queue) -> list[int]:
    """The numbers of all messages in *queue*, which is empty then, sorted."""
    return sorted(int(each.body) for each in drained(queue))
