"""A queue with partitions in Spark: read as a table, consumed, and its journal followed, each row once with its id."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.spark import Lag, ack, lag
from shardq.spark.consume.stream import ConsumingReader
from shardq.spark.options import Consuming, Reading
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from shardq.spark.stream import StreamReader
from tests.spark.consume.queries import Sink, consuming_query, drain

pytestmark = pytest.mark.timeout(300)
ROWS = 200


@pytest.fixture
def parted(client: Client, queue_name: str) -> Queue:
    """An empty queue of three partitions that keeps a journal."""
    queue = client.queue(queue_name, partitions=3, streams=4, journal=30_000, visibility_timeout=600)
    queue.declare()
    return queue


def fill(queue: Queue, count: int = ROWS, first: int = 0) -> list[str]:
    ids = queue.write_many([(f"{at}".encode(), f"tenant-{at % 20}") for at in range(first, first + count)])
    assert {each.rpartition("@")[2] for each in ids} >= {"1", "2"}
    return [*map(str, ids)]


def reading(url: str, queue: Queue, **options: Any) -> Reading:
    return Reading(url=url, subscribe=queue.name, **options)


def table(options: Reading) -> list[dict[str, Any]]:
    """All rows of the table, as tasks make them."""
    reader = BatchReader(options, arrow_schema(table_schema(options.table)))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def follow(options: Reading, start: Any) -> tuple[Any, list[dict[str, Any]]]:
    """What a stream that is started again at *start* does first: its next offset, and the rows up to there."""
    reader = StreamReader(options, arrow_schema(table_schema(options.table)))
    start = reader.initialOffset() if start is None else start
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    return end, [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_all_messages_are_read_once_with_the_ids_that_their_writes_returned(url: str, parted: Queue) -> None:
    ids = fill(parted)
    rows = table(reading(url, parted))
    assert sorted(row["message_id"] for row in rows) == sorted(ids)
    assert {row["queue"] for row in rows} == {parted.name}
    held = parted.read_many(50)
    found = {row["message_id"]: row["state"] for row in table(reading(url, parted))}
    assert {each for each, state in found.items() if state == "in_flight"} == {each.message_id for each in held}


def test_each_part_is_of_one_partition(url: str, parted: Queue) -> None:
    fill(parted)
    reader = BatchReader(reading(url, parted, partitions=6), arrow_schema(table_schema("live")))
    homes = [{row["message_id"].partition("@")[2] for b in reader.read(part) for row in b.to_pylist()}
             for part in reader.partitions()]  # fmt: skip
    assert sorted(homes, key=str) == sorted([{""}, {"1"}, {"2"}], key=str)


def test_dead_letters_have_the_entry_ids_by_which_the_queue_redrives_them(url: str, parted: Queue) -> None:
    ids = fill(parted)
    parted.reject_many(parted.read_many(ROWS), "no good")
    rows = table(reading(url, parted, state="dead"))
    assert sorted(row["message_id"] for row in rows) == sorted(ids)
    assert {row["entry_id"] for row in rows} == {each.entry_id for each in parted.dead(ROWS)}


def test_the_journal_has_each_event_once_as_the_queues_own_journal(url: str, parted: Queue) -> None:
    fill(parted)
    parted.ack_many(parted.read_many(ROWS))
    parted.pause("tenant-1", seconds=60)
    told = Counter((each.kind, each.message_id) for each in parted.journal(5_000).events)
    rows = table(reading(url, parted, state="journal"))
    assert Counter((row["kind"], row["message_id"] or "") for row in rows) == told
    assert told["paused", ""] == 1


def test_a_stream_goes_on_where_it_was_in_each_partition(url: str, parted: Queue) -> None:
    options = reading(url, parted, state="journal", starting_offsets="earliest", max_offsets_per_trigger=90)
    ids, written, start = fill(parted), list[str](), None
    for _ in range(20):
        start, rows = follow(options, start)
        assert len(rows) <= 90
        written += [row["message_id"] for row in rows if row["kind"] == "written"]
    assert sorted(written) == sorted(ids)
    more = fill(parted, 30, ROWS)
    _, rows = follow(options, start)
    assert sorted(row["message_id"] for row in rows) == sorted(more)


def test_a_stream_starts_at_the_position_of_the_queues_own_journal(url: str, parted: Queue) -> None:
    fill(parted)
    position = parted.journal(10_000).position
    more = fill(parted, 40, ROWS)
    options = reading(url, parted, state="journal", starting_offsets=f'{{"{parted.name}": {position}}}')
    _, rows = follow(options, None)
    assert sorted(row["message_id"] for row in rows) == sorted(more)


@pytest.mark.runs_in("test-all")
def test_partitions_that_join_between_two_micro_batches_are_read_from_their_beginning(
    url: str, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4, journal=30_000)
    queue.declare()
    ids = [*map(str, queue.write_many([(b"", f"tenant-{at % 20}") for at in range(50)]))]
    options = reading(url, queue, state="journal", starting_offsets="earliest")
    start, rows = follow(options, None)
    queue.resize(partitions=3)
    ids += fill(client.queue(queue_name))
    start, more = follow(options, start)
    written = [row["message_id"] for row in rows + more if row["kind"] == "written"]
    assert sorted(written) == sorted(ids)
    assert len(start) == 3
    assert follow(options, start) == (start, [])
    queue.resize(partitions=1)  # its partitions are drained, and read until they leave
    last = str(queue.write(b"", shard_key="tenant-3"))
    start, rows = follow(options, start)
    assert [row["message_id"] for row in rows if row["kind"] == "written"] == [last]


def consuming(url: str, queue: Queue, **options: Any) -> ConsumingReader:
    return ConsumingReader(
        Consuming(url=url, mode="consume", subscribe=queue.name, **options), arrow_schema(table_schema("leased"))
    )


def leased(reader: ConsumingReader, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_micro_batch_has_no_more_than_it_may_and_none_is_left_over(url: str, parted: Queue) -> None:
    ids, found = fill(parted), list[str]()
    reader = consuming(url, parted, max_in_flight=64)
    start = reader.initialOffset()
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            break
        rows = leased(reader, start, end)
        assert 0 < len(rows) <= 64
        found += [row["message_id"] for row in rows]
        start = end
    reader.stop()
    assert sorted(found) == sorted(ids)
    assert (parted.stats().acked, parted.len()) == (ROWS, 0)


def test_a_query_whose_driver_was_killed_is_handed_the_same_and_acks_each_once(url: str, parted: Queue) -> None:
    ids = fill(parted)
    killed = consuming(url, parted)
    start = killed.initialOffset()
    end = killed.latestOffset(start, killed.getDefaultReadLimit())
    before = leased(killed, start, end)
    for hold in killed.holds.values():
        hold.stop()  # so ends its thread with its process
    again = consuming(url, parted)
    rows = leased(again, start, end)
    assert sorted(row["message_id"] for row in rows) == sorted(row["message_id"] for row in before) == sorted(ids)
    assert again.latestOffset(end, again.getDefaultReadLimit()) == end
    again.stop()
    assert (parted.stats().acked, parted.len()) == (ROWS, 0)


@pytest.mark.runs_in("test-all")
def test_a_query_sees_partitions_that_join(url: str, client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4)
    queue.declare()
    reader = consuming(url, queue)
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    queue.resize(partitions=3)
    ids, found = fill(client.queue(queue_name)), list[str]()
    while len(found) < ROWS:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found += [row["message_id"] for row in leased(reader, start, end)] if end != start else []
        start = end
    reader.commit(start)
    reader.stop()
    assert sorted(found) == sorted(ids)
    assert queue.len() == 0


@pytest.mark.runs_in("test-all")
def test_spark_reads_consumes_and_acks_a_queue_with_partitions(
    spark: Any, url: str, parted: Queue, tmp_path: Path
) -> None:
    ids = fill(parted)
    rows = spark.read.format("shardq").options(url=url, subscribe=parted.name).load()
    assert sorted(row.message_id for row in rows.select("message_id").collect()) == sorted(ids)
    sink = Sink(tmp_path / "sink")
    drain(spark, url, sink, tmp_path / "checkpoint", subscribe=parted.name, maxInFlight=80)
    assert sorted(row.message_id for row in sink.rows(spark)) == sorted(ids)
    assert (parted.stats().acked, parted.len()) == (ROWS, 0)
    fill(parted)

    def work(df: Any, batch: int) -> None:
        assert ack(df, url=url).settled == ROWS

    given = {"subscribe": parted.name, "ackOn": "job"}
    query = consuming_query(spark, url, work, tmp_path / "other", {"availableNow": True}, **given)
    query.awaitTermination()
    assert (parted.stats().acked, parted.len()) == (2 * ROWS, 0)
    assert lag(query.lastProgress) == {parted.name: Lag(0, 0.0)}
