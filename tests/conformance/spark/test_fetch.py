"""Messages read again by their ids, as the tasks of a Spark job read what its driver holds; and what a query holds."""

from __future__ import annotations

import pytest

from shardq import Client
from shardq.client import Delivery, Queue
from shardq.spark.ops import holds
from shardq.spark.ops.scan import FETCHED_BYTES, SCANNED, fetch
from tests.servers import Cluster, Server
from tests.waiting import eventually


@pytest.fixture
def queue(server_client: Client, queue_name: str) -> Queue:
    return server_client.queue(queue_name, streams=4, streams_per_shard=2, window=1)


def handles(deliveries: list[Delivery]) -> list[tuple[str, str]]:
    """Where the messages lie, sorted by place."""
    tokens = [each.received.token.split(":") for each in deliveries]
    return sorted((place, entry) for place, entry, *_ in tokens)


def bodies(queue: Queue, wanted: list[tuple[str, str]]) -> list[bytes | None]:
    """What is there of the *wanted* messages; however many calls that takes."""
    found: list[bytes | None] = []
    while len(found) < len(wanted):
        some = queue._client.run(fetch(queue.state, wanted[len(found) :]))
        assert some
        found += [None if each is None else bytes(each.fields[3]) for each in some]
    return found


@pytest.mark.everywhere
def test_messages_are_found_wherever_they_lie(queue: Queue) -> None:
    """In streams, and in the bodies: of those that were held back, and of one that was delayed."""
    queue.write_many([(b"%d" % at, "flood") for at in range(300)])
    queue.write_many([(b"%d" % (300 + at), f"quiet-{at}") for at in range(20)])
    queue.write(b"320", shard_key="late", delay=0.001)
    eventually(lambda: queue.stats().backlog == 321)
    held = queue.read_many(1000)
    wanted = handles(held)
    assert {place for place, _ in wanted} > {"d"}
    assert sorted(int(each or 0) for each in bodies(queue, wanted)) == list(range(321))
    assert queue.stats().in_flight == 321


def test_what_was_settled_is_not_there(queue: Queue) -> None:
    queue.write_many([(b"%d" % at, f"t-{at}") for at in range(10)])
    held = queue.read_many(10)
    wanted = handles(held)
    before = bodies(queue, wanted)
    queue.ack_many([each for each in held if int(each.body) % 2])
    assert bodies(queue, wanted) == [each if int(each or 0) % 2 == 0 else None for each in before]


def test_a_call_reads_no_more_than_is_good_for_the_server(queue: Queue) -> None:
    queue.write_many([(b"x" * 1_000_000, f"t-{at}") for at in range(10)])
    wanted = handles(queue.read_many(10))
    found = queue._client.run(fetch(queue.state, wanted))
    assert len(found) == -(-FETCHED_BYTES // 1_000_000)
    assert [len(each or b"") for each in bodies(queue, wanted)] == [1_000_000] * 10
    many = [("0", f"1-{at}") for at in range(SCANNED + 5)]
    assert queue._client.run(fetch(queue.state, many)) == [None] * SCANNED


def test_what_a_query_holds_is_remembered_by_micro_batch(queue: Queue, server_client: Client) -> None:
    state = queue.state
    assert server_client.run(holds.recall(state, "a", 3)) is None
    server_client.run(holds.remember(state, "a", 3, b"three"))
    server_client.run(holds.remember(state, "a", 4, b"four"))
    server_client.run(holds.remember(state, "b", 3, b"other"))
    assert server_client.run(holds.recall(state, "a", 3)) == b"three"
    for _ in range(2):
        server_client.run(holds.remember(state, "a", "ended", "3 done", dropped=3))
    assert server_client.run(holds.recall(state, "a", "ended")) == b"3 done"
    assert [server_client.run(holds.recall(state, "a", batch)) for batch in (3, 4)] == [None, b"four"]
    assert server_client.run(holds.recall(state, "b", 3)) == b"other"


def test_the_hold_of_a_query_expires(queue: Queue, server_client: Client, server: Server) -> None:
    server_client.run(holds.remember(queue.state, "a", 1, b"one"))
    with server.client() as raw:
        assert 0 < raw.pttl(queue.state.keys.hold("a")) <= holds.REMEMBERED_SECONDS * 1000


def test_a_hold_expires_though_its_query_dies_after_the_first_step(
    queue: Queue, server_client: Client, server: Server
) -> None:
    """There is no second step: a key that had to be told to expire by another call would be left for ever."""
    op = holds.remember(queue.state, "a", 1, b"one")
    reply = server_client._driver.perform(next(op))
    with server.client() as raw:
        assert 0 < raw.pttl(queue.state.keys.hold("a")) <= holds.REMEMBERED_SECONDS * 1000
    with pytest.raises(StopIteration):
        op.send(reply)


def test_on_a_cluster_messages_are_found_too(cluster: Cluster, queue_name: str) -> None:
    with Client.from_url(cluster.url) as client:
        queue = client.queue(queue_name, streams=4)
        queue.write_many([(b"%d" % at, f"t-{at}") for at in range(50)])
        assert sorted(int(each or 0) for each in bodies(queue, handles(queue.read_many(50)))) == list(range(50))
        client.run(holds.remember(queue.state, "a", 1, b"one"))
        assert client.run(holds.recall(queue.state, "a", 1)) == b"one"
