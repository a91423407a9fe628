"""A full server: writes are refused whole, everything that empties the queue goes on, and then writes work again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client, Empty, OutOfMemory, PartlyWritten, Queue, ServerUnfit
from shardq.spark.ops.holds import recall, remember
from tests.conformance.census import take
from tests.fault.conftest import Open
from tests.servers import Server

BODY = b"x" * 10_000


@pytest.fixture
def full(server: Server, open_client: Open, queue_name: str) -> Iterator[Queue]:
    """A queue with 300 messages of 10 kB on a server that has no memory left."""
    queue = open_client(server.url).queue(queue_name, streams=4, max_deliveries=3)
    queue.write_many([(BODY, f"tenant-{n}") for n in range(300)])
    server.run("CONFIG", "SET", "maxmemory", int(server.info("memory")["used_memory"]) - 200_000)
    yield queue
    server.run("CONFIG", "SET", "maxmemory", 0)


def test_a_write_is_refused_whole(full: Queue) -> None:
    before = full.stats()
    for _ in range(3):
        with pytest.raises(OutOfMemory):
            full.write(BODY, shard_key="tenant")
    with pytest.raises(OutOfMemory):
        full.write(BODY, shard_key="tenant", delay=5, dedup_key="k")
    with pytest.raises(PartlyWritten) as caught:
        full.write_many([(BODY, "tenant")] * 300)
    assert {type(result) for result in caught.value.results} == {OutOfMemory}  # also the rest, which was not sent
    after = full.stats()
    assert (after.written, after.backlog, after.streams) == (before.written, before.backlog, before.streams)


def test_a_streaming_query_still_writes_down_what_it_holds(full: Queue) -> None:
    """It could not give back what it leased, and the queue would not be drained."""
    run = full._client.run
    run(remember(full.state, "query", 3, BODY))
    assert run(recall(full.state, "query", 3)) == BODY
    run(remember(full.state, "query", "ended", "3 done", dropped=3))
    assert run(recall(full.state, "query", 3)) is None


def test_all_that_empties_the_queue_goes_on_until_it_is_drained_and_then_writes_work(
    full: Queue, server: Server
) -> None:
    first, second, third, fourth, fifth = full.read_many(5)
    first.ack()
    second.nack(error="again")
    third.nack(delay=0.01)
    fourth.extend(60)
    fifth.reject("poison")
    assert full.cancel(fourth.message_id) == "in flight"
    settled = 0
    while deliveries := full.read_many(50, block=0.2):
        assert full.ack_many(deliveries) == []
        settled += len(deliveries)
    assert settled == 297
    full.write(b"small", shard_key="tenant")
    assert full.read().body == b"small"


def test_a_reader_that_starts_while_the_server_is_full_can_drain_it(full: Queue, server: Server) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(full.name, create=True)
        assert len(queue.read_many(50)) == 50
        assert queue.stats().in_flight == 50


def test_ended_leases_are_taken_back_while_the_server_is_full(full: Queue) -> None:
    ended = full.read_many(10, visibility_timeout=0.05)
    found: dict[str, int] = {}
    while len(found) < 300:
        found |= {each.message_id: each.count for each in full.read_many(100, block=2)}
    assert {found[each.message_id] for each in ended} == {2}


def test_a_purge_makes_room(full: Queue) -> None:
    assert full.purge() == 300
    full.write(BODY, shard_key="tenant")


def test_a_waiting_reader_waits_while_the_server_is_full(full: Queue) -> None:
    full.purge()
    with pytest.raises(Empty):
        full.read(block=0.1)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(server: Server, open_client: Open, queue_name: str, policy: str) -> None:
    server.run("CONFIG", "SET", "maxmemory", 10**9)
    server.run("CONFIG", "SET", "maxmemory-policy", policy)
    queue = open_client(server.url).queue(queue_name, create=True)
    for call in (lambda: queue.write("work", shard_key="tenant"), queue.read, queue.len):
        with pytest.raises(ServerUnfit, match="noeviction"):
            call()
    assert server.run("DBSIZE") == 0


@pytest.mark.parametrize("window", [0, 1])
def test_a_batch_that_fills_the_server_is_stored_whole(
    server: Server, open_client: Open, queue_name: str, window: int
) -> None:
    """Redis looks at its memory before a script begins, never halfway: some keys are counted, others are held back."""
    queue = open_client(server.url).queue(queue_name, streams=4, window=window)
    queue.write(BODY, shard_key="tenant")
    queue.ack_many(queue.read_many(1))
    server.run("CONFIG", "SET", "maxmemory", int(server.info("memory")["used_memory"]) + 4_000_000)
    try:
        with pytest.raises(PartlyWritten) as caught:
            queue.write_many([(BODY, f"tenant-{n % 20}") for n in range(1000)])
    finally:
        server.run("CONFIG", "SET", "maxmemory", 0)
    written = [each for each in caught.value.results if isinstance(each, str)]
    assert len(written) % 250 == 0
    with server.client() as raw:
        assert take(raw, queue.state.keys).problems() == []
    found = []
    while some := queue.read_many(100):
        found += some
    assert {each.message_id for each in found} == set(written) != set()
