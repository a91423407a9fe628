"""Bulk offsets that Redis loses while a write goes on: nothing is stored twice, and lost rows are noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Client, Message
from shardq.client import Queue
from shardq.errors import OutcomeUnknown
from shardq.ops.queue.opening import open_queue
from shardq.spark.ops.bulk import BulkOffset, store_rows
from shardq.spark.ops.recount import Recount, recount
from shardq.spark.ops.rows import RowPace, Rows
from shardq.spark.ops.scan import server_ms
from shardq.spark.ops.unnumbered import store_unnumbered
from tests.servers import Cluster, Server
from tests.waiting import eventually


@pytest.fixture
def queue(server_client: Client, queue_name: str) -> Queue:
    queue = server_client.queue(queue_name, streams=8, streams_per_shard=2)
    server_client.run(open_queue(queue.state, queue.state.until()))
    return queue


def begin(queue: Queue) -> int:
    """When a write begins now. What happens after this has a later time."""
    client = queue._client
    now = client.run(server_ms(client.clock, client.timeout))
    eventually(lambda: client.run(server_ms(client.clock, client.timeout)) > now)
    return now


def offset(began: int, partition: str = "0", stored: int = 0) -> BulkOffset:
    return BulkOffset("w", partition, began=began, stored=stored)


def store(queue: Queue, offset: BulkOffset, first: int, after: int) -> None:
    numbers = range(first, after)
    rows = Rows([b"tenant-%d" % (number % 7) for number in numbers], "b", [b"%d" % number for number in numbers])
    queue._client.run(store_rows(queue.state, offset, first, rows, RowPace(chunk=50)))


def reopened(queue: Queue, server: Server) -> None:
    """Another client opens the queue, which creates the key again."""
    server.run("DEL", queue.state.keys.dedup)
    with Client.from_url(server.url) as other:
        other.queue(queue.name, create=True).read_many(1)


def rewritten(queue: Queue, server: Server) -> None:
    """A write of somebody else makes the key anew, without a sentinel."""
    server.run("DEL", queue.state.keys.dedup)
    queue.write_many([Message(b"x", "t")])


def deleted(queue: Queue, server: Server) -> None:
    server.run("DEL", queue.state.keys.dedup)


@pytest.mark.parametrize("lose", [deleted, reopened, rewritten])
def test_a_second_try_that_may_store_rows_twice_is_refused(
    queue: Queue, server: Server, lose: Callable[[Queue, Server], None]
) -> None:
    """Also in partitions that nobody has begun: all that is known is that something was lost."""
    began = begin(queue)
    store(queue, offset(began), 0, 300)
    lose(queue, server)
    before = queue.len()
    for partition in ("0", "1"):
        with pytest.raises(OutcomeUnknown, match=r"lost what it knew of write id 'w'.*partition .,.*a new write id"):
            store(queue, offset(began, partition), 0, 500)
    assert queue.len() == before


def test_what_was_lost_before_a_write_does_not_stop_it(queue: Queue, server: Server) -> None:
    reopened(queue, server)
    began = begin(queue)
    for stop in (100, 200):
        store(queue, offset(began), 0, stop)
    assert queue.len() == 200


def test_a_queue_that_is_created_after_a_write_began_has_lost_nothing(server_client: Client, queue: Queue) -> None:
    """As one that a row names, and of which nobody knew before."""
    began = begin(queue)
    other = server_client.queue(f"{queue.name}-later", create=True)
    server_client.run(open_queue(other.state, other.state.until()))
    for stop in (100, 200):
        store(other, offset(began), 0, stop)
    assert other.len() == 200


def test_a_queue_of_an_older_shardq_does_not_say_since_when_it_remembers(queue: Queue, server: Server) -> None:
    server.run("HSET", queue.state.keys.dedup, "", "")
    began = begin(queue)
    store(queue, offset(began), 0, 100)
    assert queue.len() == 100
    reopened(queue, server)
    with pytest.raises(OutcomeUnknown, match="lost what it knew"):
        store(queue, offset(began), 0, 100)


def test_a_clock_that_was_ahead_when_the_key_was_made_again_stops_no_write(queue: Queue, server: Server) -> None:
    server.run("HSET", queue.state.keys.dedup, "", begin(queue) + 10**9)
    store(queue, offset(begin(queue)), 0, 100)
    assert queue.len() == 100


def test_rows_that_are_gone_are_told_from_offsets_that_are_gone(queue: Queue, server: Server) -> None:
    """Of 1,300 partitions: more than one call asks for."""
    began, keys = begin(queue), queue.state.keys
    for partition in ("0", "1", "2"):
        store(queue, offset(began, partition), 0, 100)
    done = [offset(began, str(number), 100 if number < 3 else 0) for number in range(1300)]
    assert queue._client.run(recount(queue.state, done)) == Recount([], [])
    store(queue, BulkOffset("w", "2", 1, began=began), 0, 10)
    assert queue._client.run(recount(queue.state, done)) == Recount([], []), "a later batch begins when this is stored"
    more = [*done[:2], offset(began, "1200", 5), offset(began, "0", 101)]
    assert queue._client.run(recount(queue.state, more)) == Recount(more[2:], [])
    ended = [BulkOffset("w", "1200", remember=0, began=began, stored=5)]
    assert queue._client.run(recount(queue.state, ended)) == Recount([], ended)
    server.run("DEL", keys.dedup)
    assert queue._client.run(recount(queue.state, done)) == Recount([], done[:3])
    server.run("FLUSHALL")
    assert queue._client.run(recount(queue.state, done)) == Recount(done[:3], [])
    with Client.from_url(server.url) as other:
        other.queue(queue.name, create=True).read_many(1)
    assert queue._client.run(recount(queue.state, done)) == Recount(done[:3], [])


def test_on_a_cluster_any_node_says_when_a_write_begins(cluster: Cluster, queue_name: str) -> None:
    with Client.from_url(cluster.url) as client:
        queue = client.queue(queue_name, streams=4)
        queue.read_many(1)
        began = begin(queue)
        store(queue, offset(began), 0, 300)
        assert client.run(recount(queue.state, [offset(began, stored=300)])) == Recount([], [])
        rows = Rows([b"t"] * 700, "b", [b"x"] * 700)
        client.run(store_unnumbered(queue.state, rows, RowPace(chunk=50)))
        assert queue.len() == 1000
