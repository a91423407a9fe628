"""Rows stored in bulk: each once, in order of their numbers, whatever becomes of those who store them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import BackendTimeout, ConfigError, QueueFull
from shardq.ops.bulk import Pace, Rows, Tally, finish, store_rows
from shardq.ops.opening import opened
from tests.servers import Cluster, Server
from tests.waiting import eventually


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url, timeout=20) as client:
        yield client


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    return made(client, queue_name)


def made(client: Client, name: str, **settings: int) -> Queue:
    queue = client.queue(name, **{"streams": 16, "streams_per_shard": 3, **settings})  # type: ignore[arg-type]
    client.run(opened(queue.state, queue.state.until()))
    return queue


def rows(first: int, after: int, tenants: int = 40) -> Rows:
    """Rows that are known by their numbers."""
    numbers = range(first, after)
    return Rows([b"tenant-%d" % (number % tenants) for number in numbers], "b", [b"%d" % number for number in numbers])


def store(queue: Queue, tally: Tally, first: int, after: int, **pace: float) -> None:
    queue._client.run(store_rows(queue.state, tally, first, rows(first, after), Pace(**pace)))  # type: ignore[arg-type]


def held(queue: Queue) -> list[int]:
    """The numbers of all rows in *queue*, which is empty then."""
    found = []
    while some := queue.read_many(1000):
        queue.ack_many(some)
        found += [int(each.body) for each in some]
    return sorted(found)


def test_rows_are_stored_once_by_any_number_of_tries(queue: Queue, rng: Random) -> None:
    """The oracle is a range: each try stops somewhere, and begins again with chunks of its own."""
    for batch in range(3):
        total = rng.randrange(1, 4000)
        stops = sorted(rng.randrange(total + 1) for _ in range(5))
        for stop in [*stops, total, total]:
            tally, page = Tally("w", "0", batch), rng.choice([7, 100, 1000, 5000])
            for first in range(0, stop, page):
                store(
                    queue,
                    tally,
                    first,
                    min(stop, first + page),
                    chunk=rng.choice([1, 10, 60, 250]),
                    calls=rng.randrange(1, 9),
                )
        finish(tally, total)
        assert held(queue) == list(range(total))


def test_copies_that_run_at_once_store_each_row_once(queue: Queue) -> None:
    """As speculative tasks do; each has connections and chunks of its own."""

    def copy(size: int) -> None:
        tally = Tally("w", "0")
        for first in range(0, 6000, 1500):
            store(queue, tally, first, first + 1500, chunk=size, calls=4)

    threads = [threading.Thread(target=copy, args=(size,)) for size in (30, 45, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(queue) == list(range(6000))


def test_partitions_and_writes_do_not_know_of_one_another(queue: Queue) -> None:
    for write, partition in (("a", "0"), ("a", "1"), ("b", "0")):
        store(queue, Tally(write, partition), 0, 50)
    assert Counter(held(queue)) == dict.fromkeys(range(50), 3)


def test_a_batch_that_is_over_stores_nothing_more(queue: Queue) -> None:
    store(queue, Tally("w", "0", 1), 0, 100)
    store(queue, Tally("w", "0", 2), 0, 30)
    store(queue, Tally("w", "0", 1), 0, 100)
    assert len(held(queue)) == 130


def test_a_queue_that_is_resized_meanwhile_gets_each_row_once(queue: Queue) -> None:
    tally = Tally("w", "0")
    for first, streams in ((0, 40), (1000, 3), (2000, 300), (3000, 16)):
        store(queue, tally, first, first + 1000, chunk=50)
        queue.resize(streams)
    assert held(queue) == list(range(4000))


def test_other_rows_than_before_are_refused(queue: Queue) -> None:
    store(queue, Tally("w", "0"), 0, 500)
    with pytest.raises(ConfigError, match="row 499 of partition 0 is not the one"):
        queue._client.run(store_rows(queue.state, Tally("w", "0"), 0, rows(0, 700, tenants=7), Pace()))
    fewer = Tally("w", "0")
    store(queue, fewer, 0, 400)
    with pytest.raises(ConfigError, match="row 499 of partition 0 is not the one"):
        finish(fewer, 400)
    assert held(queue) == list(range(500))


def test_what_redis_lost_is_noticed(queue: Queue, server: Server) -> None:
    tally = Tally("w", "0")
    store(queue, tally, 0, 500)
    server.run("HDEL", queue.state.keys.dedup, tally.lane)
    with pytest.raises(BackendTimeout, match="Redis knows only of 0"):
        store(queue, tally, 500, 600)
    assert held(queue) == list(range(500))


def test_a_full_queue_takes_what_fits_and_the_rest_later(client: Client, queue_name: str) -> None:
    small = made(client, queue_name, max_len=137)
    tally = Tally("w", "0")

    def full() -> bool:
        with pytest.raises(QueueFull, match=r"took no more rows for 0.1 s, since it is full \(max_len\)"):
            store(small, tally, 0, 400, patience=0.1)
        return small.len() == 137

    eventually(full, what="what fits is stored; a machine that stands still uses up the patience sooner")
    assert held(small) == list(range(137))
    small.configure(max_len=0)
    store(small, Tally("w", "0"), 0, 400)
    assert held(small) == list(range(137, 400))


def test_a_tenant_at_its_bound_holds_the_rows_back(client: Client, queue_name: str) -> None:
    fair = made(client, queue_name, window=2, max_backlog=5)
    tally = Tally("w", "0")

    def full() -> bool:
        with pytest.raises(QueueFull, match=r"\(max_backlog\)"):
            store(fair, tally, 0, 400, patience=0.1)
        return fair.len() == 200

    eventually(full, what="what fits is stored")
    assert held(fair) == list(range(200))
    store(fair, Tally("w", "0"), 0, 210)
    assert held(fair) == list(range(200, 210))


def test_delays_keys_and_headers_go_along(queue: Queue) -> None:
    options = ["3600000||", "||key", "||key", ""]
    packed = Rows([b"t"] * 4, "b", [b"0", b"1", b"2", b"3"], [b"", b"", b"", b"\x81\xa1a\xa1b"], options, True)
    queue._client.run(store_rows(queue.state, Tally("w", "0"), 0, packed, Pace()))
    assert queue.stats().delayed == 1
    found = {each.body: each.headers for each in queue.read_many(10)}
    assert found == {b"1": {}, b"3": {"a": "b"}}


def test_a_server_that_is_killed_midway_loses_and_doubles_nothing(server: Server, tmp_path: object) -> None:
    """With an append-only file that is written before each answer."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    with (
        Server(directory=str(tmp_path), options=options) as durable,
        Client.from_url(durable.url, timeout=20) as client,
    ):
        queue, done = made(client, "bulk"), threading.Event()

        def load() -> None:
            tally = Tally("w", "0")
            for first in range(0, 20_000, 500):
                store(queue, tally, first, first + 500, chunk=50)
            done.set()

        thread = threading.Thread(target=load)
        thread.start()
        for _ in range(3):
            done.wait(0.15)
            durable.restart()
        thread.join()
        assert done.is_set()
        assert held(queue) == list(range(20_000))


@pytest.mark.cluster
def test_on_a_cluster_each_row_is_stored_once(cluster: Cluster, queue_name: str) -> None:
    with Client.from_url(cluster.url) as client:
        queue = made(client, queue_name)
        for stop in (700, 1000):
            store(queue, Tally("w", "0"), 0, stop)
        assert held(queue) == list(range(1000))
