"""Many small queues share tasks, in a read and when they are consumed; what is large has tasks of its own."""

from __future__ import annotations

import pytest

from shardq import Client
from shardq.spark import sweep
from shardq.spark.consume.stream import ConsumingReader
from shardq.spark.options import Consuming, Reading, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from tests.servers import Server

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.timeout(120)]
QUEUES, ROWS, TASKS = 40, 10, 4


@pytest.fixture
def names(server: Server, queue_name: str) -> list[str]:
    names = [f"{queue_name}.{at}" for at in range(QUEUES)]
    with Client.from_url(server.url) as client:
        for name in names:
            client.queue(name, streams=2, create=True).write_many([(b"x", f"t{at}") for at in range(ROWS)])
    return names


def test_small_queues_share_the_tasks_of_a_read(
    server: Server, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MESSAGES_OF_TASK", 50)
    monkeypatch.setattr(sweep, "MAX_AGAIN", 0)
    with Client.from_url(server.url) as client:
        for at in range(10 * ROWS):  # at several moments, by which it is cut
            client.queue(names[0]).write(b"x", shard_key=f"t{at % 10}")
    given = {"url": server.url, "subscribe": ",".join(names), "partitions": str(TASKS)}
    reader = BatchReader(parsed(Reading, given), arrow_schema(table_schema("live")))
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert TASKS < len(parts) <= 2 * TASKS
    assert len({(row["queue"], row["message_id"]) for row in rows}) == len(rows) == QUEUES * ROWS + 10 * ROWS


def test_small_queues_share_the_tasks_of_a_consumer(server: Server, names: list[str]) -> None:
    given = {"url": server.url, "subscribe": ",".join(names), "mode": "consume", "partitions": str(TASKS)}
    reader = ConsumingReader(parsed(Consuming, given), arrow_schema(table_schema("leased")))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    parts = reader.partitions(start, end)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    reader.commit(end)
    reader.stop()
    assert len(parts) == TASKS
    assert len({(row["queue"], row["message_id"]) for row in rows}) == len(rows) == QUEUES * ROWS
    with Client.from_url(server.url) as client:
        assert {(client.queue(name).len(), client.queue(name).stats().acked) for name in names} == {(0, ROWS)}
