"""What Redis forgets or loses while Spark writes: the job fails and says why; nothing is stored twice in silence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from shardq import Client
from shardq.client import Queue
from shardq.errors import BackendError, PipelineFailed
from shardq.spark.connection import server_ms_of
from shardq.spark.options import Writing, parsed
from shardq.spark.pipelines.load import save
from shardq.spark.sinks import StoredRows, Wrote
from shardq.spark.writer import BatchWriter, StreamWriter
from tests.servers import Server
from tests.spark.rows import drained, numbered, write

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
ROWS, AT = 40_000, 19_000


@pytest.fixture(autouse=True)
def pages(spark: Any) -> Iterator[None]:
    """Small pages, so that much is stored when a task fails midway."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def forgetful(frame: Any, server: Server, queue: Queue, write_id: str, *, all_of_it: bool = False) -> Any:
    """*frame*, of which row AT deletes what Redis knows of writes, or *all_of_it*, once its task has stored rows.

    Then the first try of its task fails.
    """
    url, key, field = server.url, queue.state.keys.dedup, f"o:{write_id}:0"

    def checked(payload: bytes) -> bytes:
        import time

        import redis
        from pyspark import TaskContext

        context = TaskContext.get()
        if int(payload) == AT and context is not None and context.attemptNumber() == 0:
            with redis.Redis.from_url(url) as client:
                until = time.monotonic() + 60
                while not client.hexists(key, field) and time.monotonic() < until:
                    time.sleep(0.01)
                client.flushall() if all_of_it else client.delete(key)
            raise RuntimeError("made to fail")
        return payload

    return frame.withColumn("payload", F.udf(checked, "binary", useArrow=False)("payload"))


def counts(queue: Queue) -> Counter[int]:
    """How often each number is in *queue*, which is empty then."""
    return Counter(int(each.body) for each in drained(queue))


def test_a_task_that_is_tried_again_when_redis_has_forgotten_it_fails_for_good(
    spark: Any, url: str, queue: Queue, spark_server: Server
) -> None:
    with pytest.raises(Exception, match=r"lost what it knew of write id 'w'.* a new write id"):
        write(forgetful(numbered(spark, ROWS), spark_server, queue, "w"), queue, url, writeId="w")
    found = counts(queue)
    assert found
    assert set(found.values()) == {1}


def test_nobody_is_told_to_run_such_a_write_again(
    spark: Any, url: str, queue: Queue, spark_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by `shardq pipeline load` nor by the driver's log, as they do otherwise."""
    options = parsed(Writing, {"url": url, "queue": queue.name})
    writer = BatchWriter(options, "w", server_ms_of(options))
    writer.abort([])
    assert "Write again with writeId=w and the same rows" in caplog.messages[-1]
    with pytest.raises(PipelineFailed, match=r"lost what it knew of write id 'w'.* a new write id$"):
        save(forgetful(numbered(spark, ROWS), spark_server, queue, "w"), "w", {"url": url, "queue": queue.name})
    writer.abort([])
    assert "writeId=w: to write again under it would store rows twice" in caplog.messages[-1]


def test_so_does_one_of_many_queues(spark: Any, url: str, queue: Queue, spark_server: Server) -> None:
    """Which only the rows name, so that the driver has not seen it."""
    rows = forgetful(numbered(spark, ROWS), spark_server, queue, "w").withColumn("queue", F.lit(queue.name))
    with pytest.raises(Exception, match=r"lost what it knew of write id 'w'.* a new write id"):
        rows.write.format("shardq").options(url=url, writeId="w").mode("append").save()
    found = counts(queue)
    assert found
    assert set(found.values()) == {1}


def test_so_does_a_micro_batch(spark: Any, url: str, queue: Queue, spark_server: Server, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS // 2)))
    rows = spark.readStream.schema("id long").json(str(tmp_path / "in"))
    rows = rows.selectExpr("'tenant' as shard_key", "cast(cast(id as string) as binary) as payload")
    writer = forgetful(rows, spark_server, queue, "w").writeStream.format("shardq")
    writer = writer.options(url=url, queue=queue.name, writeId="w", checkpointLocation=str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"lost what it knew of write id 'w'.* a new write id"):
        writer.trigger(availableNow=True).start().awaitTermination()
    found = counts(queue)
    assert found
    assert set(found.values()) == {1}


def test_a_server_that_is_emptied_meanwhile_has_each_row_once_or_the_job_fails(spark: Any) -> None:
    """It has them if no task had ended by then, since all are tried again then. If not, another run mends it."""
    with Server() as server, Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=8)
        queue.read_many(1)
        rows = numbered(spark, ROWS)
        try:
            write(forgetful(rows, server, queue, "w", all_of_it=True), queue, server.url, writeId="w")
        except (Py4JJavaError, PySparkException) as error:
            if not re.search(r"Redis has lost rows that were stored|there is no queue 'jobs'", str(error)):
                raise
            write(rows, queue, server.url, writeId="w", create="true")
        assert counts(queue) == dict.fromkeys(range(ROWS), 1)


def test_a_job_whose_rows_are_gone_when_it_ends_fails(spark: Any, url: str, queue: Queue, spark_server: Server) -> None:
    """Its tasks that had ended by then are not tried again, so nobody else would notice. Another run mends it."""
    keys = [*queue.state.keys.fixed, *map(queue.state.keys.stream, range(8))]
    snapshot = {key: spark_server.run("DUMP", key) for key in keys}
    dedup, fields = queue.state.keys.dedup, ("o:w:0", "o:w:1")

    def rolled_back(payload: bytes) -> bytes:
        """When the other partitions are stored, put back what the queue was when it was empty."""
        import time

        import redis

        with redis.Redis.from_url(url) as client:
            until = time.monotonic() + 60
            while not all(client.hmget(dedup, fields)) and time.monotonic() < until:
                time.sleep(0.01)
            with client.pipeline() as pipe:
                for key, value in snapshot.items():
                    pipe.restore(key, 0, value, replace=True)
                pipe.execute()
        return payload

    rows = numbered(spark, 300)
    last = spark.sql("select 'tenant' as shard_key, cast('300' as binary) as payload").coalesce(1)
    late = last.withColumn("payload", F.udf(rolled_back, "binary", useArrow=False)("payload"))
    with pytest.raises(
        Exception, match=r"lost rows that were stored: queue '.*' does not know of all 150 rows of part"
    ):
        write(rows.union(late), queue, url, writeId="w")
    assert queue.len() == 1
    write(rows.union(last), queue, url, writeId="w")
    assert counts(queue) == dict.fromkeys(range(301), 1)


def test_a_write_that_was_forgotten_when_all_was_stored_succeeds_with_a_warning(
    url: str, queue: Queue, spark_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """So does one of which nobody can ask. What is lost is an error, also in a micro-batch."""
    options = parsed(Writing, {"url": url, "queue": queue.name})
    began, stored = server_ms_of(options), (StoredRows(queue.name, "0", 10),)
    spark_server.run("DEL", queue.state.keys.dedup)
    BatchWriter(options, "w", began).commit([Wrote("w", 0, began, stored), None])
    assert "all rows of write id 'w' are stored" in caplog.messages[-1]
    assert "if they come again under this id, they will be stored again" in caplog.messages[-1]
    nowhere = parsed(Writing, {"url": "unix:///nowhere", "queue": queue.name, "timeout": "0.1"})
    StreamWriter(nowhere).commit([Wrote("w", 3, began, stored)], 3)
    assert "it could not be checked that they still are" in caplog.messages[-1]
    with Client.from_url(url) as other:
        other.queue(queue.name, create=True).read_many(1)  # creates the key again
    now = server_ms_of(options) + 1000
    with pytest.raises(
        BackendError, match=r"does not know of all 10 rows of partition 0 of write id 'w' \(and rows of 1"
    ):
        StreamWriter(options).commit([Wrote("w", 3, now, (*stored, StoredRows(queue.name, "1", 7)))], 3)
