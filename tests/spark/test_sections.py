"""The columns `part` and `queue` of a write: rows numbered by part, whichever tasks bring them; many queues at once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from shardq.client import Client, Queue
from tests.spark.rows import drained, numbered, numbers, write

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


def test_a_retry_with_other_partitions_stores_nothing_twice(spark: Any, url: str, queue: Queue) -> None:
    rows = numbered(spark, 1000, partitions=4).withColumn("part", F.concat(F.lit("part-"), F.spark_partition_id()))
    for count in (4, 2, 1, 3):
        write(rows.coalesce(count), queue, url, writeId="w-1", chunkSize=30)
    assert numbers(queue) == list(range(1000))


def test_parts_need_names(spark: Any, url: str, queue: Queue) -> None:
    for name in ("cast(null as string)", "repeat('x', 201)"):
        with pytest.raises(Exception, match="column part is null or longer than 200 bytes"):
            write(numbered(spark, 10).withColumn("part", F.expr(name)), queue, url)
    assert queue.len() == 0


def test_one_write_fills_many_queues(spark: Any, url: str, client: Client, queue_name: str) -> None:
    """Each row once, also when it runs again in other tasks; a row without a queue goes to the error queue."""
    number = F.col("payload").cast("string").cast("int")
    to = F.when(number % 100 == 99, F.lit(None)).otherwise(F.concat(F.lit(f"{queue_name}."), number % 3))
    rows = numbered(spark, 3000, partitions=4).withColumn("queue", to)
    rows = rows.withColumn("part", F.concat(F.lit("part-"), F.spark_partition_id()))
    options = {"url": url, "create": "true", "writeId": "w-1"}
    with pytest.raises(Exception, match="queue is null; fix it, or name an errorQueue"):
        rows.write.format("shardq").options(**options).mode("append").save()
    for count in (4, 3):
        job = rows.coalesce(count).write.format("shardq").options(**options, errorQueue=f"{queue_name}.bad")
        job.mode("append").save()
    for at in range(3):
        expected = [each for each in range(3000) if each % 3 == at and each % 100 != 99]
        assert numbers(client.queue(f"{queue_name}.{at}", create=True)) == expected
    told = [each.payload for each in drained(client.queue(f"{queue_name}.bad", create=True))]
    assert {each["error"] for each in told} == {"queue is null"}
    assert sorted(int(each["payload"]) for each in told) == list(range(99, 3000, 100))


def test_the_queue_is_an_option_or_a_column(spark: Any, url: str, queue: Queue) -> None:
    rows = numbered(spark, 10)
    with pytest.raises(Exception, match="option queue of format shardq is missing, and there is no column queue"):
        rows.write.format("shardq").options(url=url).mode("append").save()
    with pytest.raises(Exception, match="give the option queue or the column queue, not both"):
        write(rows.withColumn("queue", F.lit("other")), queue, url)
    with pytest.raises(Exception, match="there is no queue 'nowhere"):
        rows.withColumn("queue", F.lit("nowhere")).write.format("shardq").options(url=url).mode("append").save()


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ("nowhere", r"there is no queue 'nowhere': write to it first, or set the option create=true"),
        ("no{name}", "a queue name may not hold"),
    ],
)
def test_a_queue_that_cannot_be_written_to_is_noticed_before_other_rows_of_its_page_are_stored(
    spark: Any, url: str, queue: Queue, other: str, error: str
) -> None:
    to = F.when(F.col("payload") == b"99", other).otherwise(queue.name)
    rows = numbered(spark, 100, partitions=1).withColumn("queue", to)
    with pytest.raises(Exception, match=error):
        rows.write.format("shardq").options(url=url).mode("append").save()
    assert queue.len() == 0
