"""A Spark program that needs nothing of this checkout: `spark-submit --py-files shardq.zip APP URL QUEUE FOLDER`."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from shardq.spark import register


def stream(spark: SparkSession, url: str, queue: str, **options: str) -> Any:
    """A streaming DataFrame of the queue."""
    return spark.readStream.format("shardq").options(url=url, subscribe=queue, **options).load()


def run(frame: Any, folder: str, name: str, form: str = "noop", **options: str) -> Any:
    """Run the query of a stream until all is done that there is now, and return how many rows it had."""
    writer = frame.writeStream.format(form).options(**options).option("checkpointLocation", f"{folder}/{name}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(each.numInputRows for each in query.recentProgress)


def main() -> None:
    """Read, follow and consume a queue of 50 messages, and write the rows of a stream to another."""
    url, queue, folder = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    read = spark.read.format("shardq").options(url=url, subscribe=queue).load().count()
    events = stream(spark, url, queue, state="journal", startingOffsets="earliest")
    followed = run(events, folder, "followed")
    copied = run(
        events.selectExpr("shard_key", "message_id payload"), folder, "copied", "shardq", url=url, queue=f"{queue}.copy"
    )
    consumed = run(stream(spark, url, queue, mode="consume"), folder, "consumed")
    print("done", read, followed, copied, consumed, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
