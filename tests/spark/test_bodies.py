"""A backlog that the admission window holds back lies in one key: it is read by several tasks, each message once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardq import Client, Message
from shardq.client import Queue
from shardq.spark import sweep
from shardq.spark.ops import sweep as sweep_ops
from shardq.spark.ops.scan import cuts, entry_id
from shardq.spark.options import Reading, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from tests.servers import Cluster, Server
from tests.waiting import eventually

LARGE = f"{sweep.__name__}.MESSAGES_OF_TASK"
"""So many messages are worth several tasks."""


def rows_of(server: Server | Cluster, queue: Queue, **options: Any) -> tuple[list[dict[str, Any]], int]:
    """All rows of the table, and how many parts it was read in."""
    given = {"url": server.url, "subscribe": queue.name, "partitions": "6", **options}
    reader = BatchReader(parsed(Reading, given), arrow_schema(table_schema("live")))
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()], len(parts)


def flood(queue: Queue, clock_moments: int) -> None:
    """Messages that are held back, written at different moments."""
    for at in range(clock_moments):
        queue.write_many([(b"%d" % (20 * at + n), f"flood-{n % 3}") for n in range(20)])
        wait_a_moment(queue)


def wait_a_moment(queue: Queue) -> None:
    before = queue.stats().time
    eventually(lambda: queue.stats().time > before)


@pytest.mark.parametrize("by_page", [False, True])
def test_each_message_is_read_once_in_its_state(
    server: Server, client: Client, queue_name: str, monkeypatch: pytest.MonkeyPatch, by_page: bool
) -> None:
    monkeypatch.setattr(LARGE, 100)
    if by_page:  # of more messages than these it is asked page by page what became of them
        monkeypatch.setattr(sweep_ops, "STATES_A_CALL", 3)
    queue = client.queue(queue_name, streams=4, streams_per_shard=2, window=1)
    flood(queue, 40)
    taken = [queue.read_many(1)[0] for _ in range(60)]
    queue.nack_many(taken[:10], error="again")
    queue.nack_many(taken[10:15], delay=3600, error="later")
    queue.ack_many(taken[15:25])
    for each in range(30):
        queue.write(b"late", shard_key=f"t-{each}", delay=3600)
    rows, parts = rows_of(server, queue)
    assert parts > 3
    assert len({row["message_id"] for row in rows}) == len(rows) == 800 - 10 + 30
    assert Counter(row["state"] for row in rows) == {"in_flight": 35, "delayed": 35, "backlog": 750}
    assert Counter(row["last_error"] for row in rows) == {None: 805, "again": 10, "later": 5}
    again = {each.message_id for each in taken[:15]}
    assert {row["message_id"] for row in rows if row["count"] == 1} == again | {row.message_id for row in taken[25:]}
    assert {row["message_id"] for row in rows if row["last_error"]} == again
    monkeypatch.setattr(LARGE, 10**9)
    whole, _ = rows_of(server, queue)
    key = "message_id"
    assert sorted(whole, key=lambda row: str(row[key])) == sorted(rows, key=lambda row: str(row[key]))


def test_what_is_no_ordinary_message_has_its_state_too(server: Server, client: Client, queue_name: str) -> None:
    """Messages with unique keys, which lie by themselves wherever they wait; and one that waits for its death."""
    queue = client.queue(queue_name, streams=4, streams_per_shard=2, max_dead=1)
    written = queue.write_many([Message(b"", "t", unique_key=f"{at}") for at in range(7)])
    held = [queue.read_many(1)[0] for _ in range(5)]
    worked_on, given_back, later, _, rejected = (each.message_id for each in held)
    held[1].nack(error="again")
    held[2].nack(delay=3600)
    queue.reject_many(held[3:], "no good")
    rows, _ = rows_of(server, queue)
    found = {row["message_id"]: (row["state"], row["count"], row["last_error"]) for row in rows}
    wanted: dict[str, tuple[str, int, str | None]] = {
        worked_on: ("in_flight", 1, None),
        given_back: ("backlog", 1, "again"),
        later: ("delayed", 1, None),
        rejected: ("delayed", 1, "no good"),
    }
    never_read = set(written) - {each.message_id for each in held}
    assert found == wanted | dict.fromkeys(never_read, ("backlog", 0, None))
    assert [row["message_id"] for row in rows if row["lease_until"]] == [worked_on]
    assert {row["message_id"] for row in rows if row["due_at"]} == {later, rejected}


def test_large_payloads_are_read_wherever_they_lie(server: Server, client: Client, queue_name: str) -> None:
    """In a stream, in an overflow, delayed, given back, in flight, under a unique key."""
    queue = client.queue(queue_name, streams=4, streams_per_shard=2)
    bodies = [b"%d" % number * 3000 for number in range(8)]
    queue.write_many([(body, "t") for body in bodies[:5]])
    queue.write(bodies[5], shard_key="t", delay=3600)
    queue.write(bodies[6], shard_key="u", unique_key="k")
    queue.write(bodies[7], shard_key="v")
    taken = queue.read_many(3)
    queue.nack_many(taken[:1])
    rows, _ = rows_of(server, queue)
    assert sorted(row["payload"] for row in rows) == bodies
    assert Counter(row["state"] for row in rows) == {"backlog": 5, "in_flight": 2, "delayed": 1}


def test_a_cluster_is_read_too(cluster: Cluster, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LARGE, 20)
    with Client.from_url(cluster.url) as client:
        queue = client.queue(queue_name, streams=4, streams_per_shard=2)
        messages = [Message(b"x", f"t-{at % 7}", delay=3600 if at % 5 == 0 else None) for at in range(100)]
        ids = queue.write_many(messages)
        queue.nack_many(queue.read_many(10), error="again")
    rows, parts = rows_of(cluster, queue)
    assert sorted(row["message_id"] for row in rows) == sorted(ids)
    assert Counter(row["state"] for row in rows) == {"backlog": 80, "delayed": 20}
    assert parts > 1


def test_a_state_and_shard_keys_are_both_kept_to(server: Server, client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4, streams_per_shard=2)
    for key in ("a", "b"):
        queue.write_many([Message(b"x", key, delay=3600 if at == 0 else None) for at in range(5)])
    assert len(rows_of(server, queue, state="backlog", shardKeys="a")[0]) == 4
    assert len(rows_of(server, queue, state="delayed", shardKeys="a")[0]) == 1
    assert rows_of(server, queue, state="in_flight", shardKeys="a,b")[0] == []


def test_times_and_parts_are_both_kept_to(
    server: Server, client: Client, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.queue(queue_name, streams=4, streams_per_shard=2, window=1)
    flood(queue, 30)
    monkeypatch.setattr(LARGE, 100)
    every, _ = rows_of(server, queue)
    moments = sorted({row["written_at"] for row in every})
    first, last = (round(moments[at].timestamp() * 1000) for at in (7, 20))
    some, parts = rows_of(server, queue, startingTimestamp=str(first), endingTimestamp=str(last))
    wanted = {row["message_id"] for row in every if moments[7] <= row["written_at"] <= moments[20]}
    assert {row["message_id"] for row in some} == wanted
    assert len(some) == len(wanted)
    assert parts > 3


def test_a_stream_is_cut_into_about_equal_pieces(client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=1, window=0)
    key = queue.state.keys.stream(0)
    queue.write(b"", shard_key="a")
    assert client.run(cuts(queue.state, key, 4)) == []
    flood(queue, 50)
    found = client.run(cuts(queue.state, key, 5))
    assert found == sorted(found, key=int)
    numbers = [
        entry_id(each.message_id.rpartition("-")[0].encode()) for each in [*queue.read_many(1000), *queue.read_many(1)]
    ]
    sizes = Counter(sum(ms > int(cut) for cut in found) for ms, _ in numbers)
    assert len(sizes) == 5
    assert max(sizes.values()) - min(sizes.values()) <= 60


@pytest.fixture
def client(server: Server) -> Any:
    with Client.from_url(server.url) as client:
        yield client
