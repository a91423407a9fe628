"""A streaming query that consumes: what it acks and when, what it is handed again, and what comes to others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import ConfigError
from shardq.model import Received
from shardq.ops.queue.opening import open_queue
from shardq.spark import Lag, ack, lag, nack, reject, settle_last
from shardq.spark.consume.holding import Room, lease, still_held
from tests.servers import Server
from tests.spark.consume.queries import Sink, consuming_query, drain, failing_once
from tests.spark.rows import drained, numbers
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
NOW, ONCE = {"availableNow": True}, {"processingTime": "1 hour"}


def fill(queue: Queue, count: int, first: int = 0) -> None:
    queue.write_many([(f"{at}".encode(), f"tenant-{at % 10}") for at in range(first, first + count)])


def failing(df: Any, batch: int) -> None:
    assert df.count() > 0
    raise RuntimeError("the sink is down")


def test_twenty_thousand_messages_go_through_parquet_once(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    """Though a task fails after it has passed some on, and is tried again."""
    fill(queue, 20_000)
    sink, flag = Sink(tmp_path / "sink"), tmp_path / "failed"

    def work(df: Any, batch: int) -> None:
        sink(df.mapInArrow(failing_once(flag), df.schema), batch)

    drain(spark, url, work, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=6000)
    assert flag.exists()
    rows = sink.rows(spark)
    assert sorted(int(row.payload) for row in rows) == list(range(20_000))
    assert len({row.message_id for row in rows}) == 20_000
    assert {row.batch for row in rows} == {0, 1, 2, 3}
    assert (queue.stats().acked, queue.len()) == (20_000, 0)


def test_a_row_tells_what_a_delivery_does(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    queue.write(b"1", shard_key="plain")
    queue.write(b"2", shard_key="h", headers={"a": "b"}, delay=0.001)
    queue.write({"a": 1}, shard_key=b"\xff\x01")
    [given] = eventually(lambda: [each for each in queue.read_many(3) if each.headers])
    given.nack(error="again")
    eventually(lambda: queue.stats().backlog == 1)
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=queue.name)
    [row] = sink.rows(spark)
    assert (row.queue, row.message_id, row.shard_key, row["count"]) == (queue.name, given.message_id, "h", 2)
    assert (row.last_error, row.codec, row.headers, bytes(row.payload)) == ("again", "b", {"a": "b"}, b"2")


def test_what_another_program_wrote_is_a_map_of_its_fields(
    spark: Any, url: str, client: Client, queue_name: str, spark_server: Server, tmp_path: Path
) -> None:
    key = f"{queue_name}-old"
    with spark_server.client() as raw:
        raw.xgroup_create(key, "old-workers", id="0", mkstream=True)
        raw.xadd(key, {"job": "7", "k": b"\xff"})
    queue = client.queue(queue_name, streams=4, legacy_stream=key, legacy_group="old-workers")
    sink = Sink(tmp_path / "sink")
    client.run(open_queue(queue.state, queue.state.until()))
    assert queue.stats().legacy == 1
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=queue.name)
    [row] = sink.rows(spark)
    assert (row.codec, msgspec.msgpack.decode(row.payload)) == ("m", {"job": b"7", "k": b"\xff"})
    assert queue.stats().legacy == 0


def test_payloads_are_decoded_to_the_type_that_is_asked_for(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    queue.write({"n": 7}, shard_key="a")
    frame = spark.readStream.format("shardq").schema("payload struct<n: int>, lease string")
    found: list[Any] = []
    query = (
        frame.options(url=url, mode="consume", subscribe=queue.name)
        .load()
        .writeStream.foreachBatch(lambda df, _: found.extend(df.collect()))
        .trigger(**NOW)
        .start()
    )
    query.awaitTermination()
    assert [row.payload.n for row in found] == [7]
    assert lag(query.lastProgress) == {queue.name: Lag(0, 0.0)}


def test_the_job_settles_by_row_and_what_it_leaves_is_given_back(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    fill(queue, 1000)
    counts: list[Any] = []

    def work(df: Any, batch: int) -> None:
        number = df.payload.cast("string").cast("int")
        counts.append(ack(df.where(number < 600), url=url))
        counts.append(nack(df.where(number.between(600, 799)), url=url, delay=3600, error="later"))
        reason = F.concat(F.lit("bad "), number)
        counts.append(reject(df.where(number.between(800, 899)), url=url, reason=reason))

    drain(spark, url, work, tmp_path / "checkpoint", subscribe=queue.name, ackOn="job")
    assert counts == [(600, 0, 0, 0), (200, 0, 0, 0), (0, 0, 0, 100)]
    assert queue.stats().delayed == 200
    left = drained(queue)
    assert sorted(int(each.body) for each in left) == list(range(900, 1000))
    assert {each.last_error for each in left} == {"a Spark job left the message unsettled"}


def test_a_micro_batch_that_failed_is_handed_the_same_messages_again(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    fill(queue, 500)
    seen: list[set[str]] = []

    def broken(df: Any, batch: int) -> None:
        seen.append({row.lease for row in df.collect()})
        raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        drain(spark, url, broken, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=300)
    assert (queue.stats().acked, queue.stats().in_flight) == (0, 300)
    fill(queue, 100, first=500)
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=300)
    rows = sink.rows(spark)
    assert {row.lease for row in rows if row.batch == 0} == seen[0]
    assert sorted(int(row.payload) for row in rows) == list(range(600))
    assert queue.len() == 0


def test_what_a_failed_query_held_comes_to_others_when_its_leases_end(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    fill(queue, 200)
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(Exception, match="the sink is down"):
        drain(spark, url, failing, checkpoint, subscribe=queue.name, visibility=3)
    others: list[int] = []

    def all_came() -> bool:
        others.extend(numbers(queue))
        return len(others) >= 200

    eventually(all_came, 60)
    assert sorted(others) == list(range(200))
    fill(queue, 50, first=200)
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, checkpoint, subscribe=queue.name)
    assert sink.numbers(spark) == list(range(200, 250))
    assert (queue.stats().acked, queue.len()) == (250, 0)


def test_leases_hold_while_a_micro_batch_takes_three_times_as_long(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    fill(queue, 500)
    others: list[Any] = []

    def slow(df: Any, batch: int) -> None:
        assert df.count() == 500
        threading.Event().wait(9)  # time must pass on the server, or no lease would end
        others.extend(queue.read_many(10))

    drain(spark, url, slow, tmp_path / "checkpoint", subscribe=queue.name, visibility=3)
    assert not others
    assert queue.stats().acked == 500


def test_more_is_not_leased_than_is_extended_in_time(client: Client, queue_name: str) -> None:
    """Leases that ended before the last message was leased would be lost."""
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, window=1)
    for _ in range(6):
        queue.write_many([(b"", f"t-{at % 50}") for at in range(5000)])
    held: list[Received] = []
    lease(client, queue.state, held, Room(30_000, 1_000), 1.0)
    assert still_held(client, queue.state, held, 60) == held
    assert 0 < len(held) < 30_000


def test_the_last_micro_batch_of_a_stopped_query_can_be_settled(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    """A query with a long trigger has committed it, but settles it with its next one."""
    fill(queue, 130)
    sink = Sink(tmp_path / "sink")
    query = consuming_query(spark, url, sink, tmp_path / "checkpoint", ONCE, subscribe=queue.name, maxInFlight=100)
    eventually(lambda: query.lastProgress is not None, 120)
    behind = lag(query.lastProgress)[queue.name]
    assert (behind.events, (behind.seconds or 0) > 0) == (30, True)
    with pytest.raises(ConfigError, match="stop it first"):
        settle_last(query, url=url)
    query.stop()
    assert (queue.stats().acked, queue.stats().in_flight) == (0, 100)
    settle_last(query, url=url)
    assert (queue.stats().acked, queue.stats().in_flight) == (100, 0)
    settle_last(query, url=url)


def test_a_query_that_is_started_again_in_time_settles_what_it_had_committed(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    fill(queue, 100)
    sink, checkpoint = Sink(tmp_path / "sink"), tmp_path / "checkpoint"
    query = consuming_query(spark, url, sink, checkpoint, ONCE, subscribe=queue.name)
    eventually(lambda: query.lastProgress is not None, 120)
    query.stop()
    drain(spark, url, sink, checkpoint, subscribe=queue.name)
    assert (queue.stats().acked, queue.stats().in_flight) == (100, 0)
    assert sink.numbers(spark) == list(range(100))


def test_workers_beside_a_query_share_the_queue_with_it(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    fill(queue, 6000)
    sink, over = Sink(tmp_path / "sink"), threading.Event()
    theirs: list[int] = []

    def work() -> None:
        while not over.is_set():
            found = queue.read_many(20, block=0.2)
            queue.ack_many(found)
            theirs.extend(int(each.body) for each in found)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        drain(spark, url, sink, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=500)
        eventually(lambda: queue.len() == 0, 60)
    finally:
        over.set()
        worker.join()
    assert theirs
    assert sorted(theirs + sink.numbers(spark)) == list(range(6000))


@pytest.mark.runs_in("test", "test-all")
def test_a_query_that_waits_is_handed_what_comes(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")
    query = consuming_query(
        spark, url, sink, tmp_path / "checkpoint", {"processingTime": "0 seconds"}, subscribe=queue.name
    )
    try:
        for first in (0, 10, 20):
            fill(queue, 10, first)
            eventually(lambda: queue.stats().in_flight == queue.len() == 0, 120)
    finally:
        query.stop()
    assert sink.numbers(spark) == list(range(30))


def test_a_queue_that_holds_little_is_read_whole_beside_one_that_holds_much(
    spark: Any, url: str, client: Client, queue: Queue, tmp_path: Path
) -> None:
    quiet = client.queue(f"{queue.name}-quiet", streams=2)
    fill(queue, 300)
    fill(quiet, 30)
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=f"{queue.name},{quiet.name}", maxInFlight=100)
    first = [row.queue for row in sink.rows(spark) if row.batch == 0]
    assert (first.count(quiet.name), first.count(queue.name)) == (30, 70)
    assert (queue.len(), quiet.len()) == (0, 0)


def test_with_a_window_a_quiet_tenant_is_in_the_first_micro_batch(
    spark: Any, url: str, client: Client, queue_name: str, tmp_path: Path
) -> None:
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, window=1)
    queue.write_many([(b"0", "loud")] * 2000)
    queue.write(b"1", shard_key="quiet")
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=700)
    assert {row.shard_key for row in sink.rows(spark) if row.batch == 0} == {"loud", "quiet"}
    assert queue.stats().acked == 2001


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "lease"}, "option mode must be consume"),
        ({"ackOn": "end"}, "option ackOn must be commit"),
        ({"maxInFlight": 0}, "option maxInFlight must be a whole number from 1 to 100,000"),
        ({"visibility": 0.001}, "option visibility"),
        ({"subscribePattern": "a.*"}, "unknown option 'subscribepattern'"),
        ({"subscribe": "no-such-queue"}, "there is no queue 'no-such-queue'"),
        ({"subscribe": "a,a"}, "option subscribe names no queue, or one twice"),
        ({"subscribe": "a,b", "maxInFlight": 1}, "option maxInFlight must be at least the number of queues"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_leased(
    spark: Any, url: str, queue: Queue, tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    fill(queue, 5)
    with pytest.raises(Exception, match=why):
        drain(spark, url, failing, tmp_path / "checkpoint", **{"subscribe": queue.name} | options)
    assert queue.stats().in_flight == 0


def test_a_batch_read_says_how_a_batch_job_consumes(spark: Any, url: str, queue: Queue) -> None:
    with pytest.raises(Exception, match=r"mode=consume is for spark\.readStream.*shardq\.spark\.consuming"):
        spark.read.format("shardq").options(url=url, mode="consume", subscribe=queue.name).load().count()
