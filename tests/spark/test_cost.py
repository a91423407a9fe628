"""What a read costs is the same in however many parts: with the default window, with floods, and without a window."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from shardq import Client, Message
from shardq.client import Queue
from shardq.spark import sweep
from shardq.spark.options import Reading, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from tests.servers import Server

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.timeout(300)]
MESSAGES = 40_000
KEYS = {
    "ten tenants": lambda at: f"t{at % 10}",
    "hundred tenants": lambda at: f"t{at % 100}",
    "thousand tenants": lambda at: f"t{at % 1000}",
    "a flood beside others": lambda at: "flood" if at % 4 else f"t{at % 97}",
    "one flood": lambda at: "flood",
}


def filled(client: Client, name: str, keys: Any, **settings: Any) -> Queue:
    queue = client.queue(name, streams=16, streams_per_shard=2, create=True, **settings)
    for first in range(0, MESSAGES, 500):
        queue.write_many([(b"x" * 90, keys(at)) for at in range(first, first + 500)])
    return queue


def read(url: str, queue: Queue, partitions: int) -> tuple[list[str], int]:
    """The ids that a read in so many parts finds, and how many parts there were."""
    given = {"url": url, "subscribe": queue.name, "partitions": str(partitions)}
    reader = BatchReader(parsed(Reading, given), arrow_schema(table_schema("live")))
    parts = reader.partitions()
    batches = (batch for part in parts for batch in reader.read(part))
    return sorted(each for batch in batches for each in batch.column("message_id").to_pylist()), len(parts)


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("keys", KEYS)
def test_more_parts_cost_no_more_bytes(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, keys: str, window: int
) -> None:
    monkeypatch.setattr(sweep, "MESSAGES_OF_TASK", 1000)
    sent: dict[int, int] = {}
    with Client.from_url(server.url) as client, redis.Redis.from_url(server.url) as seen:
        queue = filled(client, queue_name, KEYS[keys], window=window)
        queue.read_many(100)  # these are in flight
        queue.write_many([Message(b"x", "later", delay=3600.0)] * 100)
        for partitions in (1, 2, 4, 6):
            before = seen.info("stats")["total_net_output_bytes"]
            found, parts = read(server.url, queue, partitions)
            sent[parts] = seen.info("stats")["total_net_output_bytes"] - before
            assert len(found) == len({*found}) == MESSAGES + 100
    assert len(sent) > 1
    assert max(sent.values()) <= 1.1 * sent[1], sent
