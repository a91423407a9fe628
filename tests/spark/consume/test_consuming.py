"""A Spark job that consumes: what a block holds, acks and gives back, and what the job settles by row."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Delivery, Queue
from shardq.errors import ConfigError, QueueMissing
from shardq.spark import ack, consuming, nack, reject
from tests.spark.consume.queries import failing_once
from tests.spark.rows import drained, numbers
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
BAD = b"\xff\x01"


def fill(queue: Queue, count: int) -> None:
    queue.write_many([(f"{at}".encode(), f"tenant-{at % 10}") for at in range(count)])


def test_a_block_hands_out_messages_and_acks_them_at_its_end(spark: Any, url: str, queue: Queue) -> None:
    fill(queue, 300)
    queue.write(b"300", shard_key="h", headers={"a": "b"})
    queue.write(b"301", shard_key=BAD)
    with consuming(spark, url=url, queue=queue.name) as df:
        rows = df.collect()
        assert queue.stats().in_flight == 302
        assert queue.stats().acked == 0
    assert sorted(int(row.payload) for row in rows) == list(range(302))
    by_key = {row.shard_key: row for row in rows}
    assert by_key["h"].headers == {"a": "b"}
    assert "\\xff\x01" in by_key
    assert {row["count"] for row in rows} == {1}
    assert {row.queue for row in rows} == {queue.name}
    assert queue.stats().acked == 302
    assert queue.len() == 0


def test_a_block_holds_no_more_than_it_may(spark: Any, url: str, queue: Queue) -> None:
    fill(queue, 1500)
    with consuming(spark, url=url, queue=queue.name, max_in_flight=1200) as df:
        assert df.count() == 1200
        assert len(queue.read_many(1000)) == 300
    assert queue.stats().acked == 1200


def test_an_empty_queue_gives_an_empty_table(spark: Any, url: str, queue: Queue) -> None:
    with consuming(spark, url=url, queue=queue.name) as df:
        assert df.count() == 0
        assert ack(df, url=url) == (0, 0, 0, 0)


def use_in_vain(spark: Any, url: str, queue: Queue, ack_on: str) -> None:
    with consuming(spark, url=url, queue=queue.name, ack_on=ack_on) as df:
        assert df.count() == 50
        raise RuntimeError("the sink is down")


@pytest.mark.runs_in("test", "test-all")
@pytest.mark.parametrize("ack_on", ["end", "job"])
def test_a_block_that_fails_gives_everything_back(spark: Any, url: str, queue: Queue, ack_on: str) -> None:
    fill(queue, 50)
    with pytest.raises(RuntimeError, match="the sink is down"):
        use_in_vain(spark, url, queue, ack_on)
    assert queue.stats().delayed == 50
    again: list[Delivery] = []

    def all_are_back() -> bool:
        again.extend(drained(queue))
        return len(again) == 50

    eventually(all_are_back)
    assert sorted(int(each.body) for each in again) == list(range(50))
    assert {each.count for each in again} == {1}
    assert {each.last_error.partition("] ")[2] for each in again} == {"RuntimeError: the sink is down"}


def test_a_block_that_was_interrupted_gives_everything_back_as_if_it_had_not_been(
    spark: Any, url: str, queue: Queue
) -> None:
    fill(queue, 50)
    with pytest.raises(KeyboardInterrupt), consuming(spark, url=url, queue=queue.name):
        raise KeyboardInterrupt
    assert {(each.count, each.last_error) for each in drained(queue)} == {(1, "")}


def test_the_job_settles_by_row_and_what_it_leaves_is_given_back(spark: Any, url: str, queue: Queue) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    fill(queue, 1000)
    queue.write(b"1000", shard_key=BAD)
    with consuming(spark, url=url, queue=queue.name, ack_on="job") as df:
        number = df.payload.cast("string").cast("int")
        assert ack(df.where(number < 600), url=url) == (600, 0, 0, 0)
        assert nack(df.where(number.between(600, 799)), url=url, delay=3600, error="later") == (200, 0, 0, 0)
        reason = F.concat(F.lit("bad "), number)
        assert reject(df.where(number.between(800, 899)), url=url, reason=reason) == (0, 0, 0, 100)
        assert reject(df.where(number == 1000), url=url, reason="no text") == (0, 0, 0, 1)
        assert ack(df.where(number < 10), url=url).lost == 10
    assert queue.stats().delayed == 200
    assert numbers(queue) == list(range(900, 1000))
    letters = spark.read.format("shardq").options(url=url, subscribe=queue.name, state="dead").load().collect()
    assert {row.reason for row in letters} == {*(f"bad {at}" for at in range(800, 900)), "no text"}


def test_leases_hold_while_a_block_takes_three_times_as_long(spark: Any, url: str, queue: Queue) -> None:
    fill(queue, 500)
    with consuming(spark, url=url, queue=queue.name, visibility=3, ack_on="job") as df:
        assert threading.Event().wait(9) is False  # time must pass on the server, or no lease would end
        assert queue.read_many(10) == []
        assert ack(df, url=url) == (500, 0, 0, 0)
    assert queue.stats().acked == 500


def test_a_task_that_is_tried_again_gets_the_same_messages(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    fill(queue, 400)
    flag = tmp_path / "failed"
    with consuming(spark, url=url, queue=queue.name) as df:
        df.repartition(4, "message_id").mapInArrow(failing_once(flag), df.schema).write.parquet(str(tmp_path / "sink"))
    assert flag.exists()
    stored = spark.read.parquet(str(tmp_path / "sink"))
    assert sorted(int(row.payload) for row in stored.collect()) == list(range(400))
    assert queue.len() == 0


def test_twenty_thousand_messages_go_through_parquet_once(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    fill(queue, 20_000)
    for at in range(10):
        with consuming(spark, url=url, queue=queue.name, max_in_flight=4000) as df:
            if not df.count():
                break
            df.write.parquet(str(tmp_path / str(at)))
    stored = spark.read.parquet(*(str(each) for each in tmp_path.iterdir()))
    assert stored.count() == stored.select("message_id").distinct().count() == 20_000
    assert queue.len() == 0


def test_with_a_window_a_quiet_tenant_is_in_the_first_block(
    spark: Any, url: str, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, window=1)
    queue.write_many([(b"flood", "loud")] * 2000)
    queue.write(b"hello", shard_key="quiet")
    with consuming(spark, url=url, queue=queue.name, max_in_flight=100) as df:
        assert "quiet" in {row.shard_key for row in df.collect()}


KILLED = """
    import sys
    from pyspark.sql import SparkSession
    from shardq.spark import consuming

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    with consuming(spark, url=sys.argv[1], queue=sys.argv[2], visibility=5) as df:
        print("held", df.count(), flush=True)
        sys.stdin.read()
"""


def test_what_a_killed_driver_held_comes_again(url: str, queue: Queue) -> None:
    fill(queue, 100)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), url, queue.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held 100\n"
        driver.kill()
        driver.wait(60)
    assert queue.stats().acked == 0
    again: list[int] = []

    def all_are_back() -> bool:
        found = queue.read_many(1000)
        queue.ack_many(found)
        again.extend(int(each.body) for each in found)
        return len(again) >= 100

    eventually(all_are_back, 60)
    assert sorted(again) == list(range(100))


def test_bad_arguments_are_refused_before_anything_is_leased(spark: Any, url: str, queue: Queue) -> None:
    fill(queue, 5)
    for wrong in ({"ack_on": "commit"}, {"max_in_flight": 0}, {"visibility": -1}):
        with pytest.raises(ConfigError), consuming(spark, url=url, queue=queue.name, **wrong):
            pass
    with pytest.raises(QueueMissing), consuming(spark, url=url, queue="no-such-queue"):
        pass
    with pytest.raises(ConfigError, match="lease is missing"):
        ack(spark.range(1), url=url)
    with pytest.raises(ConfigError, match="it must be string"):
        ack(spark.range(1).withColumnRenamed("id", "lease"), url=url)
    with pytest.raises(Exception, match="is no lease"):
        ack(spark.range(1).selectExpr("'abc' as lease"), url=url)
    assert queue.stats().in_flight == 0


def test_an_ack_keeps_the_result_of_each_row(spark: Any, url: str, client: Client, queue_name: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    queue = client.queue(queue_name, create=True, result_ttl=60, visibility_timeout=600)
    written = {queue.write(str(at).encode(), shard_key=f"tenant-{at % 3}"): at for at in range(40)}
    with consuming(spark, url=url, queue=queue.name, ack_on="job") as df:
        number = df.payload.cast("string").cast("int")
        told = F.struct(number.alias("number"), F.create_map(F.lit("is"), (number % 2 == 0)).alias("even"))
        assert ack(df, url=url, result=F.when(number != 7, told)) == (40, 0, 0, 0)
    found = {at: queue.result(message_id) for message_id, at in written.items()}
    assert found == {at: {"number": at, "even": {"is": at % 2 == 0}} if at != 7 else None for at in range(40)}


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("'done'", "done"),
        ("binary('done')", b"done"),
        ("array(1, 2)", [1, 2]),
        ("1.5D", 1.5),
        ("1.50", "1.50"),
        ("timestamp'2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_a_result_is_read_as_a_payload_of_its_type_is(
    spark: Any, url: str, client: Client, queue_name: str, expression: str, kept: Any
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    queue = client.queue(queue_name, create=True, result_ttl=60, visibility_timeout=600)
    message_id = queue.write(b"hello", shard_key="acme")
    with consuming(spark, url=url, queue=queue.name, ack_on="job") as df:
        ack(df, url=url, result=F.expr(expression))
    assert queue.result(message_id) == kept


def test_each_partition_of_a_query_keeps_results(
    spark: Any, url: str, client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.queue(queue_name, create=True, result_ttl=60, visibility_timeout=600, partitions=3)
    ids = queue.write_many([(str(at).encode(), f"tenant-{at}") for at in range(30)])
    held = spark.readStream.format("shardq").options(url=url, subscribe=queue.name, mode="consume", ackOn="job").load()
    query = held.writeStream.foreachBatch(lambda df, _: ack(df, url=url, result=df.payload.cast("string")))
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [queue.result(each) for each in ids] == [str(at) for at in range(30)]


def test_a_result_needs_a_queue_that_keeps_results(spark: Any, url: str, queue: Queue) -> None:
    queue.write(b"hello", shard_key="acme")
    with consuming(spark, url=url, queue=queue.name, ack_on="job") as df:
        with pytest.raises(Exception, match="keeps no results: set its result_ttl"):
            ack(df, url=url, result=df.payload)
        assert queue.stats().acked == 0
