"""A consumer reads each payload once, and holds so many bytes of them as it may, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from shardq import Client
from shardq.client import Queue
from shardq.spark.consume.stream import ConsumingReader
from shardq.spark.options import Consuming, parsed
from shardq.spark.schema import arrow_schema, table_schema
from tests.servers import Server

LARGE = 40_000
"""Bytes of a payload that lies by itself where its message waits; so do smaller ones of more than 512."""


def reader(server: Server, *queues: Queue, **options: str) -> ConsumingReader:
    given = {"url": server.url, "subscribe": ",".join(each.name for each in queues), "mode": "consume", **options}
    return ConsumingReader(parsed(Consuming, given), arrow_schema(table_schema("leased")))


def batch(consumer: ConsumingReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The next micro-batch: where it ends, and its rows."""
    end = consumer.latestOffset(start)
    parts = consumer.partitions(start, end)
    return end, [row for part in parts for found in consumer.read(part) for row in found.to_pylist()]


@pytest.mark.parametrize("keys", [1, 100])
def test_each_payload_is_read_once(server: Server, queue_name: str, keys: int) -> None:
    with Client.from_url(server.url) as client, redis.Redis.from_url(server.url) as seen:
        queue = client.queue(queue_name, streams=8, streams_per_shard=2, create=True)
        payloads = {f"{at} ".encode().ljust(LARGE, b"x") for at in range(100)}
        queue.write_many([(each, f"t{at % keys}") for at, each in enumerate(payloads)])
        consumer = reader(server, queue)
        start = consumer.initialOffset()
        before = seen.info("stats")["total_net_output_bytes"]
        end, rows = batch(consumer, start)
        sent = seen.info("stats")["total_net_output_bytes"] - before
        consumer.commit(end)
        consumer.stop()
        assert {row["payload"] for row in rows} == payloads
        assert sent <= 1.1 * 100 * LARGE
        assert queue.stats().acked == 100


def test_headers_and_what_is_given_back_come_whole(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, create=True, max_deliveries=5)
        queue.write(b"small", shard_key="a", headers={"of": "small"})
        queue.write(b"l" * LARGE, shard_key="b", headers={"of": "large"})
        for each in queue.read_many(2):
            each.nack(error="not yet")
        consumer = reader(server, queue)
        start = consumer.initialOffset()
        end, rows = batch(consumer, start)
        consumer.commit(end)
        consumer.stop()
        found = [(dict(row["headers"]), row["payload"], row["count"], row["last_error"]) for row in rows]
        assert sorted(found, key=lambda row: len(row[1])) == [
            ({"of": "small"}, b"small", 2, "not yet"),
            ({"of": "large"}, b"l" * LARGE, 2, "not yet"),
        ]


@pytest.mark.parametrize("keys", [1, 30])
def test_a_micro_batch_has_so_many_bytes_and_no_more(server: Server, queue_name: str, keys: int) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=8, streams_per_shard=2, create=True)
        queue.write_many([(b"x" * 1000, f"t{at % keys}") for at in range(30)])
        consumer = reader(server, queue, maxBytes="4500")
        end, sizes = consumer.initialOffset(), list[int]()
        while sum(sizes) < 30:
            end, rows = batch(consumer, end)
            sizes.append(len(rows))
        consumer.commit(end)
        consumer.stop()
        assert (max(sizes), sum(sizes), queue.stats().acked) == (4, 30, 30)


def test_one_message_comes_however_large_it_is(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, create=True)
        queue.write(b"x" * LARGE, shard_key="a")
        consumer = reader(server, queue, maxBytes="10")
        end, rows = batch(consumer, consumer.initialOffset())
        consumer.commit(end)
        consumer.stop()
        assert [len(row["payload"]) for row in rows] == [LARGE]


def test_queues_share_the_bytes(server: Server, queue_name: str) -> None:
    with Client.from_url(server.url) as client:
        queues = [client.queue(f"{queue_name}.{at}", create=True) for at in range(3)]
        for queue in queues:
            queue.write_many([(b"x" * 1000, f"t{at}") for at in range(10)])
        consumer = reader(server, *queues, maxBytes="9500")
        _, rows = batch(consumer, consumer.initialOffset())
        consumer.stop()
        counts = [sum(row["queue"] == queue.name for row in rows) for queue in queues]
        assert (sum(counts), min(counts)) == (9, 3)
