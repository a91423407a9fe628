"""Rows stored in bulk: each once, in order of their numbers, whatever becomes of those who store them."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random

import pytest

from shardq import Client, Message
from shardq.client import Queue
from shardq.errors import BackendTimeout, ConfigError, QueueFull
from shardq.ops.queue.opening import open_queue
from shardq.spark.ops.bulk import BulkOffset, complete, finish, store_rows
from shardq.spark.ops.rows import RowPace, Rows
from tests.servers import Cluster, Server
from tests.waiting import eventually


@pytest.fixture
def queue(server_client: Client, queue_name: str) -> Queue:
    return made(server_client, queue_name)


def made(client: Client, name: str, **settings: int) -> Queue:
    queue = client.queue(name, **{"streams": 16, "streams_per_shard": 3, **settings})  # type: ignore[arg-type]
    client.run(open_queue(queue.state, queue.state.until()))
    return queue


def rows(first: int, after: int, tenants: int = 40) -> Rows:
    """Rows that are known by their numbers."""
    numbers = range(first, after)
    return Rows([b"tenant-%d" % (number % tenants) for number in numbers], "b", [b"%d" % number for number in numbers])


def store(queue: Queue, offset: BulkOffset, first: int, after: int, **pace: float) -> None:
    queue._client.run(store_rows(queue.state, offset, first, rows(first, after), RowPace(**pace)))  # type: ignore[arg-type]


def held(queue: Queue) -> list[int]:
    """The numbers of all rows in *queue*, which is empty then."""
    found = []
    while some := queue.read_many(1000):
        queue.ack_many(some)
        found += [int(each.body) for each in some]
    return sorted(found)


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all")
def test_rows_are_stored_once_by_any_number_of_tries(queue: Queue, rng: Random) -> None:
    """The oracle is a range: each try stops somewhere, and begins again with chunks of its own."""
    for batch in range(3):
        total = rng.randrange(1, 4000)
        stops = sorted(rng.randrange(total + 1) for _ in range(5))
        for stop in [*stops, total, total]:
            offset, page = BulkOffset("w", "0", batch), rng.choice([7, 100, 1000, 5000])
            for first in range(0, stop, page):
                store(
                    queue,
                    offset,
                    first,
                    min(stop, first + page),
                    chunk=rng.choice([1, 10, 60, 250]),
                    calls=rng.randrange(1, 9),
                )
        finish(offset, total)
        assert held(queue) == list(range(total))


def test_copies_that_run_at_once_store_each_row_once(queue: Queue) -> None:
    """As speculative tasks do; each has connections and chunks of its own."""

    def copy(size: int) -> None:
        offset = BulkOffset("w", "0")
        for first in range(0, 6000, 1500):
            store(queue, offset, first, first + 1500, chunk=size, calls=4)

    threads = [threading.Thread(target=copy, args=(size,)) for size in (30, 45, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(queue) == list(range(6000))


def test_partitions_and_writes_do_not_know_of_one_another(queue: Queue) -> None:
    for write, partition in (("a", "0"), ("a", "1"), ("b", "0")):
        store(queue, BulkOffset(write, partition), 0, 50)
    assert Counter(held(queue)) == dict.fromkeys(range(50), 3)


def test_a_batch_that_is_over_stores_nothing_more_and_says_so(queue: Queue) -> None:
    """Its writer is a copy that should have stopped; or it counts anew, and rows would be lost in silence."""
    store(queue, BulkOffset("w", "0", 1), 0, 100)
    store(queue, BulkOffset("w", "0", 2), 0, 30)
    for late in (0, 100, 200):
        with pytest.raises(ConfigError, match=r"batch 1 of write id 'w' comes after batch 2 of it.* a new write id"):
            store(queue, BulkOffset("w", "0", 1), 0, late + 1)
    assert len(held(queue)) == 130


def remembered(queue: Queue, server: Server) -> tuple[int, int, int]:
    """How many dedup keys, sequences and offsets are remembered. Keys and offsets have a field, nothing else has."""
    keys = queue.state.keys
    found = tuple(server.run("ZCARD", key) - 1 for key in (keys.dedup_index, keys.producers, keys.bulk_offsets))
    assert server.run("HLEN", keys.dedup) == found[0] + found[2] + 1
    return found


def test_a_stream_of_batches_is_one_tally_for_each_partition(queue: Queue, server: Server) -> None:
    """However many there were: whoever begins a batch has seen the one before stored."""
    for batch in range(20):
        for partition in ("0", "1"):
            store(queue, BulkOffset("stream", partition, batch), 0, 3)
    assert remembered(queue, server) == (0, 0, 2)
    assert Counter(held(queue)) == dict.fromkeys(range(3), 40)


def test_tallies_and_dedup_keys_take_no_room_from_each_other(
    server_client: Client, queue_name: str, server: Server
) -> None:
    """Many small bulk writes, then keys; and the other way round. Lanes, which each client has, count for neither."""
    queue = made(server_client, queue_name, max_dedup=4, max_bulk_offsets=5)
    for number in range(5):
        store(queue, BulkOffset(f"write-{number}", "0"), 0, 2)
    for number in range(4):
        queue.write(number, shard_key="t", dedup_key=str(number))
    with pytest.raises(QueueFull, match="max_dedup"):
        queue.write(9, shard_key="t", dedup_key="9")
    with Client.from_url(server.url) as other:
        other.queue(queue_name, create=True).write("plain", shard_key="t")
    assert remembered(queue, server) == (4, 2, 5)
    assert queue.len() == 15


def test_a_write_beyond_the_bound_on_tallies_is_refused_whole_and_at_once(
    server_client: Client, queue_name: str
) -> None:
    """What was begun goes on; the refused one stores each row once when there is room."""
    queue = made(server_client, queue_name, max_bulk_offsets=1)
    store(queue, BulkOffset("first", "0"), 0, 100)
    with pytest.raises(QueueFull, match=r"max_bulk_offsets = 1 .*'second' was not started: .*batchId.*raise the bound"):
        store(queue, BulkOffset("second", "0"), 0, 2000, chunk=50)
    store(queue, BulkOffset("first", "0"), 0, 200)
    assert held(queue) == list(range(200))
    queue.configure(max_bulk_offsets=2)
    for stop in (700, 2000):
        store(queue, BulkOffset("second", "0"), 0, stop, chunk=50)
    assert held(queue) == list(range(2000))


def test_tallies_whose_time_is_over_make_room(server_client: Client, queue_name: str, server: Server) -> None:
    """For other offsets at the bound; and by any write, where no bulk write comes any more."""
    queue = made(server_client, queue_name, max_bulk_offsets=2)
    for number in range(2):
        store(queue, BulkOffset(f"old-{number}", "0", remember=0.05), 0, 1)
    eventually(lambda: stored(queue, BulkOffset("new", "0", remember=0.05)))
    assert remembered(queue, server) <= (0, 0, 2)

    def forgotten() -> bool:
        queue.write_many([Message(number, "t") for number in range(40)])
        return remembered(queue, server)[2] == 0

    eventually(forgotten)


def test_of_a_write_that_is_complete_little_is_remembered(queue: Queue, server: Server) -> None:
    """But something, for copies that still run. An end that comes sooner stays, and nothing is made up."""
    offsets = [BulkOffset("w", "0"), BulkOffset("w", "1", remember=1800), BulkOffset("w", "none")]
    other = BulkOffset("other", "0")
    for offset in (*offsets[:2], other):
        store(queue, offset, 0, 10)
    queue._client.run(complete(queue.state, [*offsets, *(BulkOffset("w", str(number)) for number in range(2, 2500))]))
    seconds, _ = server.run("TIME")
    ends = [server.run("ZSCORE", queue.state.keys.bulk_offsets, offset.field) for offset in (*offsets, other)]
    left = [None if end is None else float(end) / 1000 - int(seconds) for end in ends]
    assert left == [pytest.approx(7200, abs=60), pytest.approx(1800, abs=60), None, pytest.approx(7 * 86_400, abs=60)]
    store(queue, BulkOffset("w", "0"), 0, 10)
    assert len(held(queue)) == 30


def stored(queue: Queue, offset: BulkOffset) -> bool:
    """Whether there was room for *offset*."""
    try:
        store(queue, offset, 0, 1)
    except QueueFull:
        return False
    return True


def test_a_queue_that_is_resized_meanwhile_gets_each_row_once(queue: Queue) -> None:
    offset = BulkOffset("w", "0")
    for first, streams in ((0, 40), (1000, 3), (2000, 300), (3000, 16)):
        store(queue, offset, first, first + 1000, chunk=50)
        queue.resize(streams)
    assert held(queue) == list(range(4000))


def test_other_rows_than_before_are_refused(queue: Queue) -> None:
    store(queue, BulkOffset("w", "0"), 0, 500)
    with pytest.raises(ConfigError, match="row 499 of partition 0, or one before it, is not the one"):
        queue._client.run(store_rows(queue.state, BulkOffset("w", "0"), 0, rows(0, 700, tenants=7), RowPace()))
    fewer = BulkOffset("w", "0")
    store(queue, fewer, 0, 400)
    with pytest.raises(ConfigError, match="row 499 of partition 0, or one before it, is not the one"):
        finish(fewer, 400)
    assert held(queue) == list(range(500))


@pytest.mark.parametrize("changed", [0, 180, 299, 498])
@pytest.mark.parametrize("page", [90, 300, 2000])
def test_other_rows_before_the_last_stored_one_are_refused(queue: Queue, changed: int, page: int) -> None:
    """As of a file that was overwritten and ends with the same row: wherever it differs, and however it is paged."""
    store(queue, BulkOffset("w", "0"), 0, 500, chunk=70)
    other, offset = rows(0, 700), BulkOffset("w", "0")
    other = Rows(other.shard_keys, "b", [b"x" if at == changed else body for at, body in enumerate(other.bodies)])

    def bring() -> None:
        for first in range(0, 700, page):
            part = Rows(other.shard_keys[first : first + page], "b", other.bodies[first : first + page])
            queue._client.run(store_rows(queue.state, offset, first, part, RowPace(chunk=45)))

    with pytest.raises(ConfigError, match="row 499 of partition 0, or one before it, is not the one"):
        bring()
    assert held(queue) == list(range(500))


def test_rows_that_change_places_are_others(queue: Queue) -> None:
    """Also if they are of one shard key; and shard keys that change places are noticed, too."""
    store(queue, BulkOffset("w", "0"), 0, 100)
    for keys, bodies in (([b"b", b"a"], [b"0", b"1"]), ([b"a", b"b"], [b"1", b"0"])):
        same = rows(2, 100)
        other = Rows([*keys, *same.shard_keys], "b", [*bodies, *same.bodies])
        with pytest.raises(ConfigError, match="is not the one"):
            queue._client.run(store_rows(queue.state, BulkOffset("w", "0"), 0, other, RowPace()))


@pytest.mark.parametrize("page", [100, 130, 1000])
def test_a_write_that_an_older_shardq_began_goes_on(queue: Queue, server: Server, page: int) -> None:
    """Its mark is the checksum of the last stored row alone."""
    store(queue, BulkOffset("w", "0"), 0, 300)
    key, field = queue.state.keys.dedup, BulkOffset("w", "0").field
    before = server.run("HGET", key, field).rpartition(b"|")[0]
    server.run("HSET", key, field, before + b"|" + rows(0, 300).mark(299).encode())
    with pytest.raises(ConfigError, match="is not the one"):
        queue._client.run(store_rows(queue.state, BulkOffset("w", "0"), 0, rows(0, 400, tenants=7), RowPace()))
    offset = BulkOffset("w", "0")
    for first in range(0, 400, page):
        store(queue, offset, first, min(400, first + page), chunk=40, calls=2)
    store(queue, BulkOffset("w", "0"), 0, 500)
    assert held(queue) == list(range(500))


def test_what_redis_lost_is_noticed(queue: Queue, server: Server) -> None:
    offset = BulkOffset("w", "0")
    store(queue, offset, 0, 500)
    server.run("HDEL", queue.state.keys.dedup, offset.field)
    with pytest.raises(BackendTimeout, match="Redis knows only of 0"):
        store(queue, offset, 500, 600)
    assert held(queue) == list(range(500))


def test_a_full_queue_takes_what_fits_and_the_rest_later(server_client: Client, queue_name: str) -> None:
    small = made(server_client, queue_name, max_len=137)
    offset = BulkOffset("w", "0")

    def full() -> bool:
        with pytest.raises(QueueFull, match=r"took no more rows for 0.1 s, since it is full \(max_len\)"):
            store(small, offset, 0, 400, patience=0.1)
        return small.len() == 137

    eventually(full, what="what fits is stored; a machine that stands still uses up the patience sooner")
    assert held(small) == list(range(137))
    small.configure(max_len=0)
    store(small, BulkOffset("w", "0"), 0, 400)
    assert held(small) == list(range(137, 400))


def test_a_tenant_at_its_bound_holds_the_rows_back(server_client: Client, queue_name: str) -> None:
    fair = made(server_client, queue_name, window=2, max_backlog=5)
    offset = BulkOffset("w", "0")

    def full() -> bool:
        with pytest.raises(QueueFull, match=r"\(max_backlog\)"):
            store(fair, offset, 0, 400, patience=0.1)
        return fair.len() == 200

    eventually(full, what="what fits is stored")
    assert held(fair) == list(range(200))
    store(fair, BulkOffset("w", "0"), 0, 210)
    assert held(fair) == list(range(200, 210))


def test_delays_keys_and_headers_go_along(queue: Queue) -> None:
    options = ["3600000||", "||key", "||key", ""]
    packed = Rows([b"t"] * 4, "b", [b"0", b"1", b"2", b"3"], [b"", b"", b"", b"\x81\xa1a\xa1b"], options)
    queue._client.run(store_rows(queue.state, BulkOffset("w", "0"), 0, packed, RowPace()))
    assert queue.stats().delayed == 1
    found = {each.body: each.headers for each in queue.read_many(10)}
    assert found == {b"1": {}, b"3": {"a": "b"}}


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_server_that_is_killed_midway_loses_and_doubles_nothing(server: Server, tmp_path: object) -> None:
    """With an append-only file that is written before each answer."""
    with (
        Server(directory=str(tmp_path)) as durable,
        Client.from_url(durable.url, timeout=20) as client,
    ):
        queue, done = made(client, "bulk"), threading.Event()

        def load() -> None:
            offset = BulkOffset("w", "0")
            for first in range(0, 20_000, 500):
                store(queue, offset, first, first + 500, chunk=50)
            done.set()

        thread = threading.Thread(target=load)
        thread.start()
        for _ in range(3):
            done.wait(0.15)
            durable.restart()
        thread.join()
        assert done.is_set()
        assert held(queue) == list(range(20_000))


def test_on_a_cluster_each_row_is_stored_once(cluster: Cluster, queue_name: str) -> None:
    with Client.from_url(cluster.url) as client:
        queue = made(client, queue_name)
        for stop in (700, 1000):
            store(queue, BulkOffset("w", "0"), 0, stop)
        assert held(queue) == list(range(1000))
