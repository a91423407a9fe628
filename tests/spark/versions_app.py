"""A Spark program for any version of PySpark: what it can do with a queue. `versions_app.py URL QUEUE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from shardq.spark import ack, consuming, register
from tests.spark.programs import QUICK

SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.default.parallelism": "1",
    "spark.python.daemon.module": "tests.spark.daemon",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def followed(frame: Any, folder: Path, name: str, form: str = "noop", **options: str) -> int:
    """Run the query of a stream until all is done that there is now. How many rows it had."""
    writer = frame.writeStream.format(form).options(**options).option("checkpointLocation", f"{folder}/{name}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(each.numInputRows for each in query.recentProgress)


def streams(spark: SparkSession, url: str, queue: str, folder: Path) -> str:
    """What the streams of a queue have: its journal, and what a query consumes; "refused" where PySpark has none."""
    given = {"url": url, "subscribe": queue}
    reader = spark.readStream.format("shardq").options(**given)
    try:
        journal = reader.options(state="journal", startingOffsets="earliest").load()
        events = followed(journal, folder, "journal")
        consumer = spark.readStream.format("shardq").options(**given, mode="consume").load()
        return f"{events}+{followed(consumer, folder, 'consumed')}"
    except Exception as error:
        if "needs PySpark 4.2" not in str(error):
            raise
        return "refused"


def main() -> None:
    """Write 40 rows and 20 of a stream, read them, consume 30 in a block, and what is left in a stream."""
    url, queue, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    builder = SparkSession.builder.master("local[1]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    rows = spark.range(40).selectExpr("concat('t', id % 4) shard_key", "named_struct('id', id) payload")
    rows.write.format("shardq").options(url=url, queue=queue, codec="json").mode("append").save()
    (folder / "landing").mkdir()
    (folder / "landing" / "rows.txt").write_text("".join(f"{at}\n" for at in range(20)))
    landed = spark.readStream.text(str(folder / "landing")).selectExpr("'t' shard_key", "value payload")
    followed(landed, folder, "landed", "shardq", url=url, queue=queue)
    held = spark.read.format("shardq").options(url=url, subscribe=queue).load().count()
    with consuming(spark, url=url, queue=queue, max_in_flight=30, ack_on="job") as block:
        acked = ack(block, url=url).settled
    print("done", held, acked, streams(spark, url, queue, folder), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
