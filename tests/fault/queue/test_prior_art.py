"""The twenty defects of the closest prior art, by number; shardq does each of them right.

16, 17, 18 and 19 also have tests elsewhere: the Lua lint refuses keys built inside scripts and unbounded `unpack`, the
benchmarks measure an empty read over many streams, tests/unit/shardq/test_sharding.py shows how few tenants move.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import permutations

import pytest

from shardq import Client, ConfigError, Empty, Message, MessageCancelled, MessageNotFound, Queue
from shardq.client import base
from shardq.protocol.keys import QueueKeys
from tests.servers import Cluster, Server
from tests.waiting import eventually

SOON = 15.0


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of the server under test."""
    with Client.from_url(server.url) as client:
        yield client


def blocked(server: Server) -> int:
    """How many clients wait on the server."""
    return int(server.info("clients")["blocked_clients"])


def fill(queue: Queue, count: int = 40) -> list[str]:
    return [*queue.write_many([(str(n), f"tenant-{n}") for n in range(count)])]


def drain(queue: Queue) -> list[str]:
    found = []
    while deliveries := queue.read_many(100):
        assert queue.ack_many(deliveries) == []
        found += [delivery.message_id for delivery in deliveries]
    return found


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize(("before", "after"), [(4, 3), (4, 2)])
def test_1_shrinking_looks_at_every_stream_that_is_dropped(
    client: Client, queue_name: str, before: int, after: int
) -> None:
    queue = client.queue(queue_name, streams=before, streams_per_shard=1)
    ids = fill(queue)
    for top in range(after, before):  # only this one of the higher streams holds something
        kept = [each for each in ids if int(each.split("-")[2]) in (top, 0)]
        for each in set(ids) - set(kept):
            queue.cancel(each)
        assert queue.resize(after) == (top + 1, after)
        assert queue.len() == len(kept)
        assert sorted(drain(queue)) == sorted(kept)
        eventually(lambda: not queue.read_many(1) and len(queue.stats().streams) == after, what="dropped when drained")
        queue.resize(before)
        ids = fill(queue)


@pytest.mark.runs_in("test-all")
def test_1_a_stream_whose_messages_are_all_in_flight_is_not_dropped(client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4, streams_per_shard=1)
    ids = fill(queue, 12)
    held = queue.read_many(100)
    assert queue.resize(1) == (1 + max(int(each.split("-")[2]) for each in ids), 1)
    for delivery in held[:6]:
        delivery.nack()
    assert queue.ack_many(held[6:]) == []
    assert sorted(drain(queue)) == sorted(delivery.message_id for delivery in held[:6])
    eventually(lambda: not queue.read_many(1) and len(queue.stats().streams) == 1, what="dropped when drained")


def test_2_a_writer_that_has_the_number_of_streams_wrong_is_corrected_and_resizes_nothing(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=8)
    ids = fill(queue)
    with Client.from_url(server.url) as old:
        wrong = old.queue(queue_name, streams=2)
        for n in range(20):  # a rolling deploy: both write in turns
            ids += [wrong.write("old", shard_key=f"t{n}"), queue.write("new", shard_key=f"t{n}")]
        queue.resize(5)
        ids.append(wrong.write("after the resize", shard_key="t"))
    with pytest.raises(ConfigError):
        client.queue(queue_name, streams=0)
    assert len(queue.stats().streams) == 8
    assert sorted(drain(queue)) == sorted(ids)


def test_3_an_acked_message_is_gone_from_the_stream_and_from_every_number(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    fill(queue, 50)
    drain(queue)
    assert queue.len() == 0
    assert queue.stats().streams == (0, 0, 0, 0)
    with server.client() as plain:
        assert [plain.xlen(QueueKeys(queue_name).stream(n)) for n in range(4)] == [0] * 4


@pytest.mark.parametrize("batch", [True, False], ids=["one call", "one by one"])
def test_4_every_blocked_reader_is_woken_when_there_is_a_message_for_each(
    server: Server, client: Client, queue_name: str, batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_SLICE", 60)
    queue = client.queue(queue_name, streams=8)
    queue.len()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        # one blocks once for all of its
        clients = [stack.enter_context(Client.from_url(server.url, wait_slice=60)) for _ in range(8)]
        readers = [pool.submit(_timed_read, each.queue(queue_name, create=True)) for each in clients]
        eventually(lambda: blocked(server) == 8)
        begun = time.monotonic()
        fill(queue, 8) if batch else [queue.write(str(n), shard_key=f"tenant-{n}") for n in range(8)]
        ends = [reader.result() for reader in readers]
    assert max(ends) - begun < SOON  # a reader that is not woken looks again after a minute


def _timed_read(queue: Queue) -> float:
    queue.read(block=2 * SOON).ack()
    return time.monotonic()


def test_5_a_notification_of_a_message_that_is_gone_does_not_end_a_wait(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    queue.read_many(1, block=0.01)  # says that readers may be blocked, so that writes notify
    fill(queue, 5)
    drain(queue)
    begun = time.monotonic()
    with pytest.raises(Empty):
        queue.read(block=0.4)
    assert time.monotonic() - begun >= 0.4


def test_6_a_wake_up_that_a_dying_reader_took_does_not_leave_the_message_waiting(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    queue.len()
    with ThreadPoolExecutor(1) as pool:
        queue.read_many(1, block=0.01)
        reading = pool.submit(_timed_read, queue)
        eventually(lambda: blocked(server))
        begun = time.monotonic()
        with server.client() as dying:  # takes the notification, and dies with it
            queue.write("work", shard_key="tenant")
            key = QueueKeys(queue_name).notifications
            dying.xreadgroup("shardq", "reader", {key: ">"}, count=10, noack=True)
        assert reading.result() - begun < SOON


def test_7_nothing_expires_by_default_and_with_a_ttl_all_keys_expire_together(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    fill(queue)
    queue.read()
    with server.client() as plain:
        assert {plain.pttl(key) for key in plain.keys("shardq:{*")} == {-1}
        queue.configure(ttl=100)
        lives = [plain.pexpiretime(key) for key in plain.keys("shardq:{*")]
        assert len(lives) == len(QueueKeys(queue_name).fixed) + 4
        assert max(lives) - min(lives) < 50
        queue.state.touch_at = 0.0
        [plain.pexpire(key, 50_000) for key in plain.keys("shardq:{*")]
        queue.read()  # any call moves the expiry of all
        assert min(plain.pttl(key) for key in plain.keys("shardq:{*")) > 90_000
        queue.configure(ttl=None)
        assert {plain.pttl(key) for key in plain.keys("shardq:{*")} == {-1}


@pytest.mark.parametrize("ttl", [0, 0.5, -1, float("nan")])
def test_8_a_ttl_that_would_delete_the_queue_is_refused(client: Client, queue_name: str, ttl: float) -> None:
    with pytest.raises(ConfigError):
        client.queue(queue_name, ttl=ttl)


def test_9_blocked_readers_outlive_the_notifications_key(server: Server, client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4)
    queue.len()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(_timed_read, queue)
        eventually(lambda: blocked(server))
        with server.client() as plain:
            key = QueueKeys(queue_name).notifications
            plain.pexpire(key, 1)
            eventually(lambda: plain.pttl(key) == -1)  # it has expired, and a reader's next look has made it again
            eventually(lambda: blocked(server))
        assert not reading.done()
        queue.write("work", shard_key="tenant")
        reading.result()


def test_10_any_number_of_first_readers_at_once_create_the_queue_without_an_error(
    server: Server, queue_name: str
) -> None:
    clients = [Client.from_url(server.url) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        readers = [pool.submit(client.queue(queue_name, streams=4).read, block=SOON) for client in clients]
        eventually(lambda: blocked(server) == 16)
        ids = fill(clients[0].queue(queue_name, create=True), 16)
        assert sorted(reader.result().message_id for reader in readers) == sorted(ids)
    for client in clients:
        client.close()


def test_11a_a_preferred_stream_that_is_empty_is_not_waited_for(client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4, streams_per_shard=1)
    message_id = queue.write("work", shard_key="tenant")
    other = (int(message_id.split("-")[2]) + 1) % 4
    begun = time.monotonic()
    assert queue.read(block=SOON, prefer_stream=other).message_id == message_id
    assert time.monotonic() - begun < SOON


def test_11b_a_preferred_stream_that_does_not_exist_is_no_preference(
    client: Client, queue_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = client.queue(queue_name, streams=4)
    fill(queue, 4)
    assert len([queue.read(prefer_stream=1000) for _ in range(4)]) == 4
    assert capfd.readouterr() == ("", "")


def test_11c_readers_that_always_prefer_the_noisy_stream_do_not_starve_the_others(
    client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4, streams_per_shard=1)
    noisy = int(queue.write("noise", shard_key="noisy").split("-")[2])
    for _ in range(199):
        queue.write("noise", shard_key="noisy")
    quiet = next(key for key in map(str, range(100)) if queue.state.shard(key) != (noisy,))
    queue.write("quiet", shard_key=quiet)
    reads = [queue.read(prefer_stream=noisy).payload for _ in range(6)]
    assert "quiet" in reads


def test_12_what_a_dead_consumer_held_is_delivered_again_counted_and_buried_past_the_limit(
    client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4, max_deliveries=3)
    message_id = queue.write("work", shard_key="tenant")
    counts = [queue.read(block=SOON, visibility_timeout=0.05).count for _ in range(3)]
    assert counts == [1, 2, 3]
    eventually(lambda: not queue.read_many(1) and queue.dead())
    (letter,) = queue.dead()
    assert (letter.message_id, letter.count, letter.reason) == (message_id, 3, "max deliveries")


def test_13_a_cancelled_message_leaves_no_ghost(server: Server, client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4)
    waiting, delayed, held = (queue.write("w", shard_key="t", delay=delay) for delay in (None, 60, None))
    first, second = queue.read(), queue.read()
    by_id = {first.message_id: first, second.message_id: second}
    by_id[waiting].nack()
    assert [queue.cancel(each) for each in (waiting, delayed, held)] == ["removed", "removed", "in flight"]
    with pytest.raises(MessageCancelled, match="cancelled"):
        by_id[held].ack()
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight, stats.delayed, queue.len()) == (0, 0, 0, 0)
    keys = QueueKeys(queue_name)
    with server.client() as plain:
        assert [plain.zcard(key) for key in (keys.leases, keys.delayed, keys.returned, keys.turns)] == [1, 1, 1, 1]
        assert [plain.hlen(key) for key in (keys.bodies, keys.errors)] == [1, 1]
        assert plain.scard(keys.cancelled) == 1
        assert {plain.xlen(keys.stream(number)) for number in range(4)} == {0}


def test_14_messages_are_cancelled_by_their_own_id_whatever_their_dedup_keys_say(
    client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    ids = [queue.write("w", shard_key="t", dedup_key=key) for key in ("a:b:c", "a:b", "a", "1", "12")]
    assert queue.write("w", shard_key="t", dedup_key="a:b") == ids[1]
    assert queue.cancel(ids[1]) == "removed"
    with pytest.raises(MessageNotFound):
        queue.cancel(ids[1])
    assert sorted(drain(queue)) == sorted(set(ids) - {ids[1]})


def test_15_messages_past_their_deadline_are_dropped_once_and_counted_by_any_number_of_readers(
    server: Server, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=8)
    queue.write_many([_lapsing(n) for n in range(100)])
    kept = fill(queue, 20)
    eventually(lambda: server.run("TIME")[0] and queue.stats().oldest_age, what="time passes")
    last = time.monotonic() + 0.05
    eventually(lambda: time.monotonic() > last)
    with ThreadPoolExecutor(8) as pool:
        found = [each for some in pool.map(lambda _: drain(queue), range(8)) for each in some]
    assert sorted(found) == sorted(kept)
    stats = queue.stats()
    assert (stats.expired, stats.acked, stats.backlog, stats.written) == (100, 20, 0, 120)


def _lapsing(number: int) -> Message:
    return Message(str(number), f"tenant-{number}", deadline=0.02)


def test_16_queues_of_any_name_work_on_a_cluster_and_each_lies_in_one_slot(cluster: Cluster, queue_name: str) -> None:
    with Client.from_url(cluster.url) as client:
        for name in (queue_name, "a", "a/b", "a:b:meta", "x" * 200):
            queue = client.queue(name, streams=4)
            assert sorted(fill(queue, 8)) == sorted(drain(queue))
            keys = QueueKeys(name)
            assert len({cluster.slot_of(key) for key in (*keys.fixed, *map(keys.stream, range(4)))}) == 1


def test_17_batches_and_messages_of_any_shape_pass(client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=4)
    ids = fill(queue, 9000)
    wide = queue.write({f"field {n}": n for n in range(9000)}, shard_key="t", headers={f"h{n}": "v" for n in range(50)})
    found = []
    while deliveries := queue.read_many(1000):
        assert queue.ack_many(deliveries) == []
        found += deliveries
    assert len(found) == len(ids) + 1
    assert len(next(each for each in found if each.message_id == wide).payload) == 9000


def test_18_an_empty_read_runs_as_many_commands_with_1000_streams_as_with_2(
    server: Server, client: Client, queue_name: str
) -> None:
    counts = []
    for streams in (2, 1000):
        queue = client.queue(f"{queue_name}.{streams}", streams=streams)
        queue.read_many(1)
        before = _commands(server)
        queue.read_many(1)
        counts.append(_commands(server) - before)
    assert counts[1] <= counts[0] + 2


def _commands(server: Server) -> int:
    """Commands that ran so far, those inside scripts included."""
    return sum(int(each["calls"]) for name, each in server.info("commandstats").items() if "info" not in name)


def test_19_few_tenants_move_when_a_stream_is_added(client: Client, queue_name: str) -> None:
    queue = client.queue(queue_name, streams=16, streams_per_shard=2)
    queue.len()
    fill(queue, 1)
    before = {str(n): set(queue.state.shard(str(n))) for n in range(2000)}
    queue.resize(17)
    moved = sum(1 for key, streams in before.items() if set(queue.state.shard(key)) != streams)
    assert 0 < moved / 2000 < 2 * 2 / 17
    assert sum(len(streams - set(queue.state.shard(key))) for key, streams in before.items()) == moved


def test_20_every_message_counts_until_it_is_settled_whatever_was_resized(
    client: Client, queue_name: str, rng: random.Random
) -> None:
    queue = client.queue(queue_name, streams=4)
    expected = 0
    for streams in rng.choice(list(permutations((1, 3, 9, 2)))):
        expected += len(fill(queue, 20))
        queue.resize(streams)
        assert queue.len() == expected
        for delivery in queue.read_many(7):
            delivery.ack()
            expected -= 1
        held = queue.read_many(3)
        assert queue.len() == expected
        stats = queue.stats()
        assert (stats.backlog, stats.in_flight) == (expected - len(held), len(held))
        for delivery in held:
            delivery.nack()
    assert len(drain(queue)) == expected
    assert queue.len() == 0
