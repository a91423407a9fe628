"""`df.write.format("shardq")` and `df.writeStream`: every row arrives once, whatever happens to tasks and queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Delivery, Queue
from shardq.spark import register
from shardq.spark.options import Writing, parsed
from shardq.spark.writer import BatchWriter
from tests.servers import Server
from tests.spark.rows import drained, numbered, numbers, write
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


def failing(frame: Any, at: int, *, attempts: int, after: Callable[[], bool] = lambda: True) -> Any:
    """*frame*, whose row number *at* makes its task fail, the first *attempts* times that it is tried, and not before
    something has happened."""
    from pyspark import TaskContext
    from pyspark.sql import functions as F  # noqa: N812

    def checked(payload: bytes) -> bytes:
        context = TaskContext.get()
        if int(payload) == at and context is not None and context.attemptNumber() < attempts:
            eventually(after)
            raise RuntimeError("made to fail")
        return payload

    return frame.withColumn("payload", F.udf(checked, "binary", useArrow=False)("payload"))


def has_some(url: str, queue: str) -> bool:
    with Client.from_url(url) as client:
        return client.queue(queue, create=True).len() > 0


@pytest.mark.runs_in("test", "test-all")
def test_every_row_becomes_one_message_of_its_shard_key(spark: Any, url: str, queue: Queue) -> None:
    write(numbered(spark, 3000), queue, url)
    found = drained(queue)
    assert sorted(int(each.payload) for each in found) == list(range(3000))
    assert all(each.shard_key == f"tenant-{int(each.payload) % 50}" for each in found)
    assert queue.stats().written == 3000


@pytest.mark.runs_in("test", "test-all")
def test_a_task_that_fails_midway_and_is_tried_again_stores_each_row_once(spark: Any, url: str, queue: Queue) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        write(failing(numbered(spark, 8000), 3500, attempts=2), queue, url, chunkSize=100)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(queue) == list(range(8000))


def test_a_write_that_failed_is_completed_under_its_id(spark: Any, url: str, queue: Queue) -> None:
    """Also with other chunks and other Arrow batches than before."""
    name = queue.name
    rows = failing(numbered(spark, 40_000), 19_000, attempts=99, after=lambda: has_some(url, name))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
    try:
        with pytest.raises(Exception, match="made to fail"):
            write(rows, queue, url, writeId="load-7", chunkSize=250)
        assert 0 < queue.len() < 40_000
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    write(numbered(spark, 40_000), queue, url, writeId="load-7", chunkSize=90)
    assert numbers(queue) == list(range(40_000))
    write(numbered(spark, 40_000), queue, url, writeId="load-7")
    assert queue.len() == 0


def test_the_log_of_a_write_that_failed_names_its_id(url: str, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    options = parsed(Writing, {"url": url, "queue": queue.name})
    BatchWriter(options, "load-8").abort([None])
    assert "Write again with writeId=load-8 and the same rows" in caplog.text


def test_a_write_without_an_id_is_remembered_shortly_once_it_succeeded(
    spark: Any, url: str, queue: Queue, client: Client, queue_name: str, spark_server: Server
) -> None:
    """Also what it set aside. With an id of the user's it is remembered for as long as he said."""
    errors = client.queue(f"{queue_name}-errors", create=True)
    rows = numbered(spark, 100).selectExpr("if(payload = '7', '', shard_key) as shard_key", "payload")

    def left() -> list[int]:
        now = spark_server.run("TIME")[0]
        found = [
            float(spark_server.run("ZSCORE", keys.bulk_offsets, lane)) / 1000 - int(now)
            for keys in (queue.state.keys, errors.state.keys)
            for lane in spark_server.run("ZRANGE", keys.bulk_offsets, 0, -2)
        ]
        return sorted(round(each / 3600) for each in found)

    write(rows, queue, url, errorQueue=errors.name, create="true")
    assert left() == [2, 2, 2]
    write(rows, queue, url, errorQueue=errors.name, writeId="w")
    assert left() == [2, 2, 2, 168, 168, 168]


def test_other_rows_under_the_id_of_an_earlier_write_are_refused(spark: Any, url: str, queue: Queue) -> None:
    write(numbered(spark, 1000), queue, url, writeId="load-8")
    with pytest.raises(Exception, match=r"is not the one that an earlier try of this write stored"):
        write(numbered(spark, 1000, tenants=7), queue, url, writeId="load-8")
    with pytest.raises(Exception, match=r"is not the one that an earlier try of this write stored"):
        write(numbered(spark, 900), queue, url, writeId="load-8")
    assert numbers(queue) == list(range(1000))


def test_other_rows_that_end_like_the_earlier_ones_are_refused(spark: Any, url: str, queue: Queue) -> None:
    """As those of a file that was overwritten: also in a partition whose rows are all stored, over several batches."""
    from pyspark.sql import functions as F  # noqa: N812

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    try:
        write(numbered(spark, 1000, 1), queue, url, writeId="w")
        changed = F.when(F.col("payload") == b"500", F.lit(b"x")).otherwise(F.col("payload"))
        with pytest.raises(Exception, match=r"row 999 of partition 0, or one before it, is not the one that"):
            write(numbered(spark, 1000, 1).withColumn("payload", changed), queue, url, writeId="w")
        write(numbered(spark, 1000, 1), queue, url, writeId="w")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(queue) == list(range(1000))


def test_two_copies_of_a_write_at_once_store_each_row_once(spark: Any, url: str, queue: Queue) -> None:
    """As the copies of a task do that is run speculatively."""

    def copy(size: int) -> None:
        register(spark)
        write(numbered(spark, 20_000, 1), queue, url, writeId="twice", chunkSize=size)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(copy, (80, 130)))
    assert numbers(queue) == list(range(20_000))


def test_columns_say_when_and_how_a_message_is_delivered(spark: Any, url: str, queue: Queue) -> None:
    rows = [
        ("a", b"now", None, None, None, {"kind": "x"}),
        ("a", b"later", 3600.0, None, None, None),
        ("a", b"over", 0.0, 0.001, None, None),
        ("a", b"once", None, None, "k-1", None),
        ("a", b"twice", None, None, "k-1", None),
    ]
    schema = (
        "shard_key string, payload binary, delay double, deadline double, dedup_key string, headers map<string,string>"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), queue, url)
    assert queue.stats().delayed == 1
    found: list[Delivery] = []

    def read() -> bool:
        found.extend(drained(queue))
        return queue.stats().expired == 1

    eventually(read)
    assert sorted(each.payload for each in found) == [b"now", b"once"]
    assert next(each.headers for each in found if each.payload == b"now") == {"kind": "x"}


@pytest.mark.parametrize(
    ("kind", "options", "payload"),
    [
        ("string", {}, '{"a": 1}'),
        ("string", {"codec": "json"}, {"a": 1}),
        ("struct", {}, {"a": 1, "b": ["x"]}),
        ("struct", {"codec": "json"}, {"a": 1, "b": ["x"]}),
        ("binary", {"codec": "json"}, {"a": 1}),
    ],
)
def test_payloads_arrive_as_what_they_are(
    spark: Any, url: str, queue: Queue, kind: str, options: dict[str, str], payload: object
) -> None:
    forms = {
        "string": """'{"a": 1}'""",
        "binary": """cast('{"a": 1}' as binary)""",
        "struct": "named_struct('a', 1, 'b', array('x'))",
    }
    write(spark.sql(f"select 'a' as shard_key, {forms[kind]} as payload"), queue, url, **options)
    assert [each.payload for each in drained(queue)] == [payload]


def test_a_row_that_is_no_message_fails_the_write_and_is_named(spark: Any, url: str, queue: Queue) -> None:
    rows = [("a", b"1"), ("", b"2"), ("a", None)]
    frame = spark.createDataFrame(rows, "shard_key string, payload binary").coalesce(1)
    with pytest.raises(Exception, match=r"row 1 of partition 0 is no valid message: shard_key has 0 bytes"):
        write(frame, queue, url)
    assert queue.len() == 0


def test_rows_that_are_no_messages_go_to_the_error_queue_once(
    spark: Any, url: str, client: Client, queue: Queue
) -> None:
    rows = [("a", b"1"), ("", b"2"), ("a", None), ("b", b"x" * 100), ("b", b"3")]
    frame = spark.createDataFrame(rows, "shard_key string, payload binary").coalesce(1)
    errors = client.queue(f"{queue.name}.errors", streams=2)
    for _ in range(2):
        write(frame, queue, url, errorQueue=errors.name, create="true", maxPayload=50, writeId="w")
    assert sorted(each.payload for each in drained(queue)) == [b"1", b"3"]
    told = sorted((each.payload for each in drained(errors)), key=lambda each: each["row"])
    assert [(each["row"], each["error"].partition(":")[0].partition(",")[0]) for each in told] == [
        (1, "shard_key has 0 bytes"),
        (2, "payload is null"),
        (3, "payload has 100 bytes"),
    ]
    assert told[0]["payload"] == b"2"
    assert told[2]["shard_key"] == "b"


def test_a_writer_waits_while_the_backlog_is_at_its_bound(spark: Any, url: str, queue: Queue) -> None:
    most, done = 0, threading.Event()
    found: list[int] = []

    def work() -> None:
        nonlocal most
        while not done.is_set() or queue.len():
            most = max(most, queue.len())
            if some := queue.read_many(200, block=0.05):
                queue.ack_many(some)
                found.extend(int(each.body) for each in some)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        write(numbered(spark, 5000, 1), queue, url, maxBacklog=400, chunkSize=100, inFlight=1)
    finally:
        done.set()
        worker.join()
    assert sorted(found) == list(range(5000))
    assert most <= 500


def test_a_queue_that_stays_full_fails_the_write_with_what_to_do(
    spark: Any, url: str, client: Client, queue_name: str
) -> None:
    small = client.queue(queue_name, streams=4, max_len=130)
    small.read_many(1)
    with pytest.raises(Exception, match=r"took no more rows for 0.5 s, since it is full \(max_len\)"):
        write(numbered(spark, 1000, 1), small, url, fullTimeout=0.5, writeId="w")
    assert small.len() == 130


# --- streams -------------------------------------------------------------------------------------------------------


def stream(spark: Any, queue: Queue, url: str, checkpoint: Path, source: Path, write_id: str = "") -> None:
    """Run a query over the files of *source* until it has no more; with a *write_id* by `foreachBatch`."""
    frame = spark.readStream.schema("number long").option("maxFilesPerTrigger", 1).json(str(source))
    rows = frame.selectExpr("'tenant' as shard_key", "cast(cast(number as string) as binary) as payload")

    def store(batch: Any, number: int) -> None:
        register(batch.sparkSession)
        write(batch, queue, url, writeId=write_id, batchId=number)

    if write_id:
        writer = rows.writeStream.foreachBatch(store)
    else:
        writer = rows.writeStream.queryName("numbers").format("shardq").options(url=url, queue=queue.name)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def files(folder: Path) -> Path:
    """Three files in *folder*, of a hundred numbers each."""
    folder.mkdir()
    for file in range(3):
        text = "".join(f'{{"number": {number}}}\n' for number in range(file * 100, file * 100 + 100))
        (folder / f"{file}.json").write_text(text)
    return folder


@pytest.mark.runs_in("test", "test-all")
def test_a_micro_batch_that_is_replayed_stores_nothing_twice(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    source, checkpoint = files(tmp_path / "in"), tmp_path / "checkpoint"
    stream(spark, queue, url, checkpoint, source)
    assert queue.len() == 300
    for done in (checkpoint / "commits").glob("*2*"):  # as if Spark had died before it wrote down the last batch
        done.unlink()
    stream(spark, queue, url, checkpoint, source)
    assert numbers(queue) == list(range(300))
    (source / "3.json").write_text('{"number": 300}\n')
    stream(spark, queue, url, checkpoint, source)
    assert numbers(queue) == [300]


def test_all_batches_of_a_foreach_batch_are_remembered_as_one(
    spark: Any, url: str, queue: Queue, spark_server: Server, tmp_path: Path
) -> None:
    """A replayed one stores nothing twice; one that begins from 0 again, after a deleted checkpoint, is refused."""
    source, checkpoint = files(tmp_path / "in"), tmp_path / "checkpoint"
    stream(spark, queue, url, checkpoint, source, "query")
    assert spark_server.run("ZCARD", queue.state.keys.bulk_offsets) == 1 + 1
    for done in (checkpoint / "commits").glob("*2*"):
        done.unlink()
    stream(spark, queue, url, checkpoint, source, "query")
    assert numbers(queue) == list(range(300))
    with pytest.raises(Exception, match=r"batch 0 of write id 'query' comes after batch 2 of it"):
        stream(spark, queue, url, tmp_path / "other", source, "query")
    assert queue.len() == 0


def test_a_batch_id_is_not_for_a_write_stream(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    rows = spark.readStream.schema("shard_key string, payload string").json(str(files(tmp_path / "in")))
    writer = rows.writeStream.format("shardq").options(url=url, queue=queue.name, writeId="w", batchId="1")
    with pytest.raises(Exception, match="a writeStream counts its batches itself"):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
