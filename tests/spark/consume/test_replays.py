"""The reader of a streaming query that is started again and again, without Spark: what it is handed, and how much."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.ops.settle import settle
from shardq.spark.consume.failures import FailedBatch, Failures
from shardq.spark.consume.lease import ReaderLease, lease_of
from shardq.spark.consume.stream import ENDED_TWICE, ConsumingReader
from shardq.spark.options import Consuming, parsed
from shardq.spark.schema import arrow_schema, table_schema
from tests.waiting import eventually

Offset = dict[str, Any]


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    queue = client.queue(queue_name, streams=4, streams_per_shard=4, max_deliveries=2, visibility_timeout=600)
    queue.write_many([(b"%d" % at, f"t-{at}") for at in range(40)])
    return queue


class Query:
    """A query whose process is another one after each `start`."""

    def __init__(self, url: str, *queues: Queue) -> None:
        names = ",".join(each.name for each in queues)
        self._options = parsed(Consuming, {"url": url, "subscribe": names})
        self.reader = self.start()

    def start(self) -> ConsumingReader:
        self.reader = ConsumingReader(self._options, arrow_schema(table_schema("leased")))
        return self.reader

    def handed(self, start: Offset, end: Offset) -> int:
        """How many messages the micro-batch has."""
        parts = self.reader.partitions(start, end)
        return sum(batch.num_rows for part in parts for batch in self.reader.read(part))


@pytest.fixture
def query(url: str, queue: Queue) -> Iterator[Query]:
    query = Query(url, queue)
    yield query
    query.reader.stop()


def restart(query: Query) -> ConsumingReader:
    query.reader.stop()
    return query.start()


def test_a_micro_batch_is_handed_out_twice_as_it_was_and_then_given_back(query: Query, queue: Queue) -> None:
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start)
    assert query.handed(start, end) == 40
    restart(query)
    assert query.handed(start, end) == 40
    assert queue.stats().in_flight == 40
    restart(query)
    assert query.handed(start, end) == 0
    assert (queue.stats().in_flight, queue.stats().delayed) == (0, 40)
    restart(query)
    assert query.handed(start, end) == 0
    query.reader.commit(end)
    restart(query)  # before it has begun another one
    eventually(lambda: queue.stats().delayed == 0 and queue.stats().backlog == 40)
    after = query.reader.latestOffset(end)
    assert (after["rows"], after["done"], after["half"]) == ({queue.name: 20}, 0, 10)
    (hold,) = query.reader.holds.values()
    assert {(each.count, each.last_error) for each in hold.held} == {
        (1, Failures().after(FailedBatch(start["hold"], 0, 40)).text(ENDED_TWICE))
    }
    assert query.handed(end, after) == 20
    query.reader.commit(after)
    restart(query)
    last = query.reader.latestOffset(after)
    assert (last["rows"], last["done"], last["most"]) == ({queue.name: 20}, 1, 40)


def test_a_query_that_died_before_spark_knew_of_a_micro_batch_has_not_failed_in_it(query: Query, queue: Queue) -> None:
    start = query.reader.initialOffset()
    for _ in range(4):
        end = query.reader.latestOffset(start)
        assert end["rows"] == {queue.name: 40}
        restart(query)
    for _ in range(2):
        assert query.handed(start, query.reader.latestOffset(start)) == 40


def suspect(queue: Queue, start: Offset, count: int, rows: int) -> None:
    """Let some messages look as if they had made two batches of so many *rows* fail, in the query of *start*."""
    known = Failures().after(FailedBatch(start["hold"], 0, 100)).after(FailedBatch(start["hold"], 1, rows))
    held = [each.received for each in queue.read_many(count)]
    queue._client.run(settle.nack(queue.state, held, 0.0, known.text("ValueError"), counted=False))


def test_suspects_have_a_micro_batch_for_themselves(query: Query, queue: Queue) -> None:
    start = query.reader.initialOffset()
    suspect(queue, start, 12, rows=16)
    end = query.reader.latestOffset(start)
    assert end["rows"] == {queue.name: 8}
    assert (queue.stats().in_flight, queue.stats().backlog) == (8, 32)
    restart(query)
    assert query.handed(start, end) == 8
    assert {Failures.of(each.last_error).rows for each in next(iter(query.reader.holds.values())).held} == {16}
    rest = query.reader.latestOffset(end)
    assert rest["rows"] == {queue.name: 4}
    assert query.reader.latestOffset(rest)["rows"] == {queue.name: 28}


def test_the_suspects_of_one_queue_are_not_mixed_with_another_queue(url: str, client: Client, queue: Queue) -> None:
    other = client.queue(f"{queue.name}-other", streams=2)
    other.write_many([(b"x", "t")] * 10)
    query = Query(url, queue, other)
    start = query.reader.initialOffset()
    suspect(queue, start, 3, rows=2)
    end = query.reader.latestOffset(start)
    assert end["rows"] == {queue.name: 1}
    assert (queue.stats().in_flight, other.stats().in_flight) == (1, 0)
    query.reader.stop()


def test_queues_take_turns_where_a_micro_batch_has_no_room_for_all(url: str, client: Client, queue: Queue) -> None:
    others = [client.queue(f"{queue.name}-{at}", streams=2) for at in range(2)]
    for each in others:
        each.write_many([(b"x", "t")] * 10)
    seen: list[str] = []
    for batch in range(3):
        query = Query(url, queue, *others)
        start = query.reader.initialOffset() | {"batch": batch, "most": 1}
        rows = query.reader.latestOffset(start)["rows"]
        assert [*rows.values()] == [1]
        seen += rows
        query.reader.stop()
    assert sorted(seen) == sorted(each.name for each in (queue, *others))


def test_what_is_settled_by_its_lease_is_charged_as_messages_and_not_for_its_time(queue: Queue) -> None:
    """From the read to the commit a query does much else."""
    queue.purge()
    queue.write_many([(b"x", key) for key in ("a", "b") for _ in range(20)])
    held = {str(each.shard_key): each for each in queue.read_many(2)}
    due = time.monotonic() + 0.3
    eventually(lambda: time.monotonic() > due)
    by_query, by_client = held.values()
    lease = lease_of(ReaderLease.of(queue.name, by_query.received).text).received
    assert queue._client.run(settle.ack(queue.state, [lease])) == [settle.Settled.OK]
    by_client.ack()
    assert queue.tenant(str(by_query.shard_key)).ahead < 0.1
    assert queue.tenant(str(by_client.shard_key)).ahead > 0.25
