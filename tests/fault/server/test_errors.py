"""What servers say when something is amiss, and that callers go on: both clients, real servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardq import BackendError, BackendTimeout, Client, Empty, LeaseLost, Queue, QueueFull
from shardq.client import base
from shardq.model import Written
from shardq.protocol.keys import MAX_PLAIN_KEYS, QueueKeys
from tests.fault.conftest import Open
from tests.servers import Cluster, Replicated, Server, ServerKind
from tests.waiting import eventually

SOON = 15.0


def blocked(server: Server) -> int:
    """How many clients wait on the server."""
    return int(server.info("clients")["blocked_clients"])


@contextmanager
def repeated(act: Callable[[], object], every: float = 0.002) -> Iterator[None]:
    """Do that over and over meanwhile."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(every):
            act()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            yield
        finally:
            stop.set()
            done.result()


@pytest.fixture
def queue(server: Server, open_client: Open, queue_name: str) -> Queue:
    """A queue that exists, and nobody waits."""
    queue = open_client(server.url).queue(queue_name, streams=4)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


@pytest.mark.everywhere
@pytest.mark.runs_in("test-all")
def test_noscript_a_script_cache_that_is_emptied_all_the_time_is_not_noticed(server: Server, queue: Queue) -> None:
    with server.client() as plain, repeated(plain.script_flush):
        for n in range(100):
            message_id = queue.write(str(n), shard_key="tenant")
            delivery = queue.read(block=SOON)
            assert (delivery.message_id, delivery.count) == (message_id, 1)
            delivery.extend(60)
            delivery.ack() if n % 2 else delivery.reject("odd")
    assert (queue.len(), queue.stats().dead) == (0, 50)


@pytest.mark.everywhere
@pytest.mark.parametrize("words", [("XGROUP", "DESTROY", "{}", "shardq"), ("DEL", "{}")], ids=["nogroup", "unblocked"])
def test_a_reader_whose_notifications_are_gone_waits_on_and_is_woken(
    server: Server, open_client: Open, queue_name: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_SLICE", 60)
    queue = open_client(server.url, wait_slice=60).queue(queue_name, create=True)
    queue.read_many(1)
    key = QueueKeys(queue.name).notifications
    with ThreadPoolExecutor() as pool:
        for _ in range(3):
            reading = pool.submit(queue.read, block=40)
            eventually(lambda: blocked(server))
            server.run(*(word.format(key) for word in words))
            eventually(lambda: blocked(server))  # it blocks again, by itself
            started = time.monotonic()
            message_id = queue.write("work", shard_key="tenant")
            assert reading.result().message_id == message_id
            assert time.monotonic() - started < SOON  # woken, not at its next look
            server.run(*(word.format(key) for word in words))  # between two reads
    with pytest.raises(Empty):
        queue.read(block=0.05)


def test_a_queue_that_is_deleted_under_its_readers_is_made_anew_with_an_error_in_the_log(
    server: Server, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(queue.read, block=SOON)
        eventually(lambda: blocked(server))
        server.run("FLUSHALL")
        eventually(lambda: server.run("EXISTS", QueueKeys(queue.name).meta))
        message_id = queue.write("work", shard_key="tenant")
        assert reading.result().message_id == message_id
    assert [record.levelname for record in caplog.records if "created again" in record.message] == ["ERROR"]


def test_a_write_to_a_queue_that_was_deleted_makes_it_anew_with_an_error_in_the_log(
    server: Server, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    server.run("FLUSHALL")
    message_id = queue.write("work", shard_key="tenant")
    assert queue.read().message_id == message_id
    assert [record.levelname for record in caplog.records if "created again" in record.message] == ["ERROR"]


def test_threads_that_open_a_queue_at_once_do_not_take_it_for_a_lost_one(
    server: Server, open_client: Open, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, together = open_client(server.url), threading.Barrier(8)

    def read(queue: Queue) -> None:
        together.wait(30)
        queue.read_many(1)

    with ThreadPoolExecutor(8) as pool:
        for n in range(20):
            list(pool.map(read, [client.queue(f"{queue_name}.{n}", streams=64)] * 8))
    assert "created again" not in caplog.text


def test_no_lease_of_an_earlier_life_of_the_queue_is_good_in_the_next(server: Server, queue: Queue) -> None:
    queue.write("old", shard_key="tenant")
    old = queue.read()
    server.run("FLUSHALL")
    queue.write("new", shard_key="tenant")
    with pytest.raises(LeaseLost, match="lease ended"):
        old.ack()
    assert queue.len() == 1


def test_a_restart_without_persistence_loses_the_queue_and_callers_go_on(
    kind: ServerKind | None, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(kind) as own:
        queue = open_client(own.url).queue("jobs", streams=4)
        queue.write("lost", shard_key="tenant")
        with ThreadPoolExecutor() as pool:
            queue.read().ack()
            reading = pool.submit(queue.read, block=20)
            eventually(lambda: blocked(own))
            own.restart()
            message_id = queue.write("kept", shard_key="tenant")
            assert reading.result().message_id == message_id
    assert "created again" in caplog.text


def test_a_restart_with_persistence_loses_nothing_and_leases_go_on(
    kind: ServerKind | None, open_client: Open, tmp_path: Path
) -> None:
    with Server(kind, directory=tmp_path / "data") as own:
        queue = open_client(own.url).queue("jobs", streams=4)
        ids = queue.write_many([(str(n), f"tenant-{n}") for n in range(50)])
        held = queue.read_many(10)
        own.restart(grace=5)
        assert queue.ack_many(held) == []
        rest = queue.read_many(100)
        assert sorted(each.message_id for each in (*held, *rest)) == sorted(ids)


def test_what_tenants_use_of_bounds_survives_a_restart(
    kind: ServerKind | None, open_client: Open, tmp_path: Path
) -> None:
    with Server(kind, directory=tmp_path / "data") as own:
        queue = open_client(own.url).queue("jobs", streams=4, max_dedup=10, max_dead=10)
        for number in range(8):
            queue.write(number, shard_key="t", dedup_key=str(number))
            queue.read().reject("no")
        own.restart(grace=5)
        assert (queue.tenant("t").dedup_keys, queue.tenant("t").dead) == (8, 8)
        with pytest.raises(QueueFull):
            queue.write(8, shard_key="t", dedup_key="8")
        queue.write(8, shard_key="u", dedup_key="8")
        queue.delete_dead(queue.dead(10))
        assert queue.tenants("dead") == []


@pytest.mark.runs_in("test-all")
def test_loading_calls_wait_until_the_server_has_read_its_data(kind: ServerKind | None, open_client: Open) -> None:
    with Server(kind, options={"save": "3600 1"}) as own:
        queue = open_client(own.url, timeout=20).queue("jobs", streams=4)
        message_id = queue.write("work", shard_key="tenant")
        own.run("DEBUG", "POPULATE", 1000, "filler", 10)
        own.run("CONFIG", "SET", "key-load-delay", 1000, "loading-process-events-interval-bytes", 1024)  # µs per key
        with ThreadPoolExecutor() as pool:
            loading = pool.submit(own.run, "DEBUG", "RELOAD")
            eventually(lambda: own.info("persistence")["loading"])
            assert queue.read(timeout=20).message_id == message_id
            loading.result()
        assert _refusals(own, "LOADING")


def test_readonly_calls_wait_for_the_primary_to_come_back(server: Server, queue: Queue) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(queue.read, block=20)
        eventually(lambda: blocked(server))
        server.run("REPLICAOF", "127.0.0.1", 1)  # nobody is there: it keeps its data and becomes read-only
        writing = pool.submit(queue.write, "work", shard_key="tenant")
        eventually(lambda: _refusals(server, "READONLY"))
        assert queue.len() == 0  # numbers are told all the same
        server.run("REPLICAOF", "NO", "ONE")
        assert waiting.result().message_id == writing.result()
    assert queue.stats().written == 2


def _refusals(server: Server, code: str) -> int:
    stats = server.info("errorstats")
    return int(stats.get(f"errorstat_{code}", {}).get("count", 0))


def gives_up(call: Callable[[], object], why: str) -> None:
    """Call it: it must fail near its deadline and say why, or that nobody answered if the machine stood still."""

    def told() -> bool:
        started = time.monotonic()
        with pytest.raises(BackendTimeout) as caught:
            call()
        assert 0.1 < time.monotonic() - started < SOON
        return why in str(caught.value)

    eventually(told)


@pytest.mark.everywhere
def test_readonly_a_call_gives_up_at_its_deadline_and_nothing_is_changed(server: Server, queue: Queue) -> None:
    server.run("REPLICAOF", "127.0.0.1", 1)
    try:
        gives_up(lambda: queue.write("work", shard_key="tenant", timeout=0.3), "READONLY")
        gives_up(lambda: queue.read(timeout=0.3), "READONLY")
    finally:
        server.run("REPLICAOF", "NO", "ONE")
    assert queue.stats().written == 1


@pytest.mark.runs_in("test-all")
def test_a_demoted_primary_and_its_successor_lose_nothing_that_was_replicated(
    kind: ServerKind | None, open_client: Open
) -> None:
    with Replicated(kind) as pair:
        old, new = pair.primary, pair.replicas[0]
        before, after = (open_client(each.url).queue("jobs", streams=4) for each in (old, new))
        ids = before.write_many([(str(n), "tenant") for n in range(20)])
        held = before.read_many(5)
        pair.wait_in_sync()
        pair.promote(new)
        rest = after.read_many(100)
        assert sorted(each.message_id for each in (*held, *rest)) == sorted(ids)
        assert after.ack_many(rest) == []
        gives_up(lambda: before.write("no", shard_key="tenant", timeout=0.2), "READONLY")


@pytest.mark.runs_in("test-all")
def test_busy_a_script_of_somebody_else_that_runs_long_delays_and_no_more(server: Server, queue: Queue) -> None:
    server.run("CONFIG", "SET", "busy-reply-threshold", 1)
    with ThreadPoolExecutor() as pool:
        pool.submit(server.run, "EVAL", "local t = redis.call('TIME')[1] while redis.call('TIME')[1] - t < 2 do end", 0)
        eventually(lambda: _busy(server))
        queue.write("work", shard_key="tenant")
        assert queue.read().count == 1
    server.run("CONFIG", "SET", "busy-reply-threshold", 5000)


def _busy(server: Server) -> bool:
    try:
        server.run("GET", "x")
    except Exception as error:  # noqa: BLE001 - redis-py: ResponseError
        return "BUSY" in str(error)
    return False


def is_half_moved(giver: Server, slot: int, queue_name: str) -> bool:
    """Whether some of the keys that each call declares are still here, and some are not."""
    left = {each.decode() for each in giver.run("CLUSTER", "GETKEYSINSLOT", slot, 100)}
    return 0 < len(left.intersection(QueueKeys(queue_name).fixed[:MAX_PLAIN_KEYS])) < MAX_PLAIN_KEYS


@pytest.mark.parametrize("batch", [1, 4])
def test_a_half_moved_slot_delays_calls_until_it_is_whole(
    cluster: Cluster, open_client: Open, queue_name: str, batch: int
) -> None:
    """TRYAGAIN while its keys are on both nodes, ASK when all are on the new one, MOVED when it owns the slot."""
    queue = open_client(cluster.url, timeout=20).queue(queue_name, streams=4)
    ids = [queue.write("first", shard_key="tenant")]
    slot = cluster.slot_of(QueueKeys(queue_name).meta)
    giver = cluster.nodes[cluster.owner(slot)]
    writes: list[Future[Written]] = []
    with ThreadPoolExecutor() as pool:

        def between(_: int) -> None:
            if not writes and is_half_moved(giver, slot, queue_name):
                writes.append(pool.submit(queue.write, "meanwhile", shard_key="tenant"))
                before = sum(_refusals(node, "TRYAGAIN") for node in cluster.nodes)
                eventually(lambda: sum(_refusals(node, "TRYAGAIN") for node in cluster.nodes) > before)
                assert not writes[0].done()

        cluster.move_slot(slot, (cluster.owner(slot) + 1) % 3, batch=batch, between=between)
        ids += [write.result() for write in writes]
    assert len(writes) == 1
    assert sorted(each.message_id for each in queue.read_many(10)) == sorted(ids)


@pytest.mark.runs_in("test-all")
def test_a_slot_that_stays_half_moved_ends_calls_at_their_deadline(
    cluster: Cluster, open_client: Open, queue_name: str
) -> None:
    queue = open_client(cluster.url).queue(queue_name, streams=4)
    message_id = queue.write("first", shard_key="tenant")
    slot = cluster.slot_of(QueueKeys(queue_name).meta)
    giver, to = cluster.nodes[cluster.owner(slot)], (cluster.owner(slot) + 1) % 3

    def between(_: int) -> None:
        if is_half_moved(giver, slot, queue_name):
            for call in (lambda: queue.write("no", shard_key="t", timeout=0.5), lambda: queue.read(timeout=0.5)):
                gives_up(call, "TRYAGAIN")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        cluster.move_slot(slot, to, batch=1, between=between)
    cluster.move_slot(slot, to)
    assert [each.message_id for each in queue.read_many(10)] == [message_id]


def test_a_refusal_that_will_not_pass_is_told_at_once(server: Server, open_client: Open) -> None:
    server.run("CONFIG", "SET", "requirepass", "secret")
    try:
        queue = open_client(server.url, timeout=30).queue("jobs", create=True)
        started = time.monotonic()
        with pytest.raises(BackendError, match="does not know this user"):
            queue.write("work", shard_key="tenant")
        assert time.monotonic() - started < SOON
    finally:
        with Client.from_url(server.url.replace("unix://", "unix://:secret@")):
            pass
        with server.client(password="secret") as plain:
            plain.config_set("requirepass", "")
