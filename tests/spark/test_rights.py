"""The users that `shardq server acl` makes: an analyst reads tables, a producer writes, a consumer holds messages."""

from __future__ import annotations

import pytest

from shardq import BackendError, Client, Message
from shardq.model import Received
from shardq.ops.queue.opening import require_queue
from shardq.ops.settle import settle
from shardq.ops.settle.settle import Settled
from shardq.protocol.roles import ROLES
from shardq.spark.connection import client_of, queue_of
from shardq.spark.consume.holding import Room, lease
from shardq.spark.consume.lease import ReaderLease
from shardq.spark.consume.settling import _settle
from shardq.spark.consume.stream import ConsumingReader
from shardq.spark.ops.bulk import BulkOffset, store_rows
from shardq.spark.ops.recount import Recount, recount
from shardq.spark.ops.rows import RowPace, Rows
from shardq.spark.ops.scan import server_ms
from shardq.spark.ops.unnumbered import store_unnumbered
from shardq.spark.options import Connecting, Consuming, Reading, parsed
from shardq.spark.parts import SparkPart
from shardq.spark.reader import read_part
from shardq.spark.schema import arrow_schema, table_schema
from shardq.spark.tracks import DeadTrack, JournalTrack
from tests.acl import Users
from tests.servers import Server


def url(server: Server, user: str) -> str:
    return Users(server).url(user)


def counted(options: Reading, part: SparkPart) -> int:
    """How many rows a part has."""
    return sum(batch.num_rows for batch in read_part(options, arrow_schema(table_schema(options.table)), part))


def test_an_analyst_may_read_all_tables_and_nothing_else(server: Server) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=4, streams_per_shard=2, journal=1000, window=2)
        queue.write_many([Message(b"x", f"t-{at % 3}", delay=60 if at % 5 == 0 else None) for at in range(50)])
        leased = queue.read_many(10)
        queue.reject_many(leased[:3], "no good")
        queue.nack_many(leased[3:5], error="again")
    given = {"url": url(server, "analyst"), "subscribe": "jobs"}

    def reading(**more: str) -> Reading:
        return parsed(Reading, given | more)

    assert counted(reading(), SparkPart("jobs", ("0", "1", "2", "3", "d"))) == 47
    assert counted(reading(state="dead"), SparkPart("jobs", (), "0-0", "+")) == 3
    with Client.from_url(given["url"]) as analyst:
        state = analyst.queue("jobs", create=True).state
        analyst.queue("jobs", create=True).stats()
        dead, journal = reading(state="dead"), reading(state="journal")
        letters = DeadTrack(analyst, state, dead)
        assert letters.on("0-0", letters.last(), 2) < letters.last()
        events = JournalTrack(analyst, state, journal)
        assert counted(journal, SparkPart("jobs", (), str(events.first()), str(events.last()))) == 50 + 10 + 3 + 2
        with pytest.raises(BackendError, match="denies this user"):
            analyst.queue("jobs", create=True).write(b"x", shard_key="t")
    server.run("ACL", "DELUSER", *ROLES)


def test_a_producer_may_write_in_bulk(server: Server) -> None:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=4).read_many(1)
    with Client.from_url(url(server, "producer")) as producer:
        state = producer.queue("jobs", create=True).state
        producer.run(require_queue(state, state.until()))
        rows = Rows([b"t"] * 600, "b", [b"x"] * 600)
        began = producer.run(server_ms(producer.clock, producer.timeout))
        offset = BulkOffset("w", "0", began=began)
        producer.run(store_rows(state, offset, 0, rows, RowPace(max_backlog=1000)))
        assert producer.run(recount(state, [offset])) == Recount([], [])
        producer.run(store_unnumbered(state, rows, RowPace()))
    server.run("ACL", "DELUSER", *ROLES)
    with Client.from_url(server.url) as client:
        assert client.queue("jobs", create=True).len() == 1200


def test_a_consumer_may_hold_messages_for_a_spark_job(server: Server) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=4, streams_per_shard=2)
        queue.write_many([Message(b"x", f"t-{at}") for at in range(30)])
    options = Connecting(url=url(server, "consumer"))
    consumer, state = client_of(options), queue_of(options, "jobs")
    held: list[Received] = []
    lease(consumer, state, held, Room(100, 1000), 30)
    assert consumer.run(settle.extend(state, held, 30)) == [Settled.OK] * 30
    leases = [ReaderLease.of("jobs", each).text for each in held]
    results = [
        *_settle(options, lambda state, held, _: settle.ack(state, held), leases[:10], [""] * 10),
        *_settle(options, lambda state, held, why: settle.nack(state, held, 60, why), leases[10:20], ["later"] * 10),
        *_settle(options, settle.reject, leases[20:], ["no good"] * 10),
    ]
    assert results == ["o"] * 20 + ["d"] * 10
    server.run("ACL", "DELUSER", *ROLES)


def test_a_consumer_may_be_a_streaming_query(server: Server) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=4, streams_per_shard=2)
        queue.write_many([Message(b"x", f"t-{at}") for at in range(30)])
    options = parsed(Consuming, {"url": url(server, "consumer"), "subscribe": "jobs"})
    schema = arrow_schema(table_schema("leased"))
    first, second = ConsumingReader(options, schema), ConsumingReader(options, schema)
    start = first.initialOffset()
    end = first.latestOffset(start)
    assert end["rows"] == {"jobs": 30}
    first.stop()
    parts = second.partitions(start, end)
    assert sum(batch.num_rows for part in parts for batch in second.read(part)) == 30
    second.commit(end)
    second.stop()
    server.run("ACL", "DELUSER", *ROLES)
    with Client.from_url(server.url) as client:
        assert client.queue("jobs", create=True).stats().acked == 30
