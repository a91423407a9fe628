"""Results: kept for who holds the lease, bounded, told to all who wait. Progress, and that a message is done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from shardq import (
    Client,
    ConfigError,
    LeaseLost,
    MessageCancelled,
    MessageDead,
    NoResult,
    Queue,
    QueueMissing,
    ResultPending,
)
from shardq.ops.results import wait as awaiting
from shardq.ops.results.keep import keep, kept_result
from shardq.ops.results.waiters import result_waiting_of
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually

SETTINGS = [
    {"window": 0}, {"window": 1}, {"parents": 1}, {"max_in_flight": 5}, {"journal": 1000}, {"total_in_flight": 9},
]  # fmt: skip


def no_result(queue: Queue, message_id: str) -> str:
    """Why a message has no result, and will have none."""
    with pytest.raises(NoResult) as told:
        queue.result(message_id, timeout=0)
    return str(told.value)


@pytest.mark.everywhere
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_result_is_kept_with_the_ack(open_queue: OpenQueue, settings: dict[str, int]) -> None:
    queue = open_queue(result_ttl=60, **settings)
    values: list[Any] = [None, 0, b"\x00|raw|", "text|more", {"a": [1, {"b": 2.5}]}, [], False]
    for value in values:
        message_id = queue.write("work", shard_key="a/b")
        with pytest.raises(ResultPending):
            queue.result(message_id, timeout=0)
        delivery = queue.read()
        with pytest.raises(ResultPending):
            queue.result(message_id, timeout=0)
        delivery.ack(result=value)
        assert queue.result(message_id, timeout=0) == value
        assert queue.result(message_id) == value
        status = queue.status(message_id)
        assert (status.state, status.reason, status.written_at) == ("done", "", int(message_id.split("-")[0]) / 1000)
        assert status.since is not None
        assert status.until == pytest.approx(status.since + 60)
        assert status.since <= status.time
    stats = queue.stats()
    assert (stats.in_flight, stats.backlog, stats.acked, stats.results_refused) == (0, 0, len(values), 0)
    assert stats.result_count == len(values)


def test_many_results_are_kept_together(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60, window=0)
    ids = queue.write_many([(number, f"t{number % 7}") for number in range(450)])
    found = []
    while deliveries := queue.read_many(500):
        assert queue.ack_many(deliveries, results=[delivery.payload * 2 for delivery in deliveries]) == []
        found += deliveries
    assert [queue.result(each, timeout=0) for each in ids[::50]] == [number * 2 for number in range(0, 450, 50)]
    assert (queue.stats().result_count, queue.stats().acked) == (450, 450)


def test_a_result_that_was_kept_does_not_hide_that_the_message_died(open_queue: OpenQueue) -> None:
    """Its holder kept the result, and did not come to the ack."""
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    first = queue.read(visibility_timeout=60)
    queue.client.run(keep(queue.state, [(first.received, kept_result(queue.client.codecs, 100, "kept"))]))
    assert queue.result(message_id, timeout=0) == "kept"
    first.nack(error="it crashed")
    queue.read().reject("no")
    assert queue.status(message_id).state == "dead"
    with pytest.raises(MessageDead):
        queue.result(message_id, timeout=0)


def test_an_ack_without_a_result_keeps_none(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    queue.read().ack()
    assert "has no result" in no_result(queue, message_id)
    assert queue.status(message_id).state == "unknown"
    assert queue.stats().result_count == 0


def test_only_the_holder_of_the_lease_keeps_a_result(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    first = queue.read(visibility_timeout=20)
    world.elapse(queue, 30)
    with pytest.raises(LeaseLost):
        first.ack(result="late")
    with pytest.raises(ResultPending):
        queue.result(message_id, timeout=0)
    second = queue.read()
    with pytest.raises(LeaseLost):
        first.ack(result="late")
    second.ack(result="right")
    with pytest.raises(LeaseLost):
        first.ack(result="too late")
    assert queue.result(message_id) == "right"
    cancelled = queue.write(2, shard_key="t")
    delivery = queue.read()
    queue.cancel(cancelled)
    assert "cancelled" in no_result(queue, cancelled)
    with pytest.raises(MessageCancelled):
        delivery.ack(result="in vain")
    assert "removed" in no_result(queue, cancelled)


def test_a_message_that_will_have_no_result_says_why(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    dead = queue.write(1, shard_key="t")
    queue.read().reject("no such account")
    with pytest.raises(MessageDead, match="no such account") as told:
        queue.result(dead)
    assert told.value.reason == "no such account"
    waiting = queue.write(2, shard_key="t")
    queue.cancel(waiting)
    assert "removed" in no_result(queue, waiting)
    queue.redrive(queue.dead())
    with pytest.raises(ResultPending):
        queue.result(dead, timeout=0)
    queue.read().ack(result="after all")
    assert queue.result(dead) == "after all"
    assert "never was" in no_result(queue, "1-1-0")
    assert "message_id" in no_result(queue, "nonsense")


def test_results_are_refused_above_the_bounds(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60, max_result_size=1000, max_result_bytes=5000)

    def done(result: object) -> str:
        message_id = queue.write(1, shard_key="t")
        queue.read().ack(result=result)
        assert queue.status(message_id).state == "done"
        return message_id

    assert queue.result(done(b"x" * 1000)) == b"x" * 1000
    large = done(b"x" * 1001)
    assert "larger than max_result_size" in no_result(queue, large)
    assert queue.status(large).reason == "size"
    assert "could not encode" in no_result(queue, done(object()))
    ids = [done(b"x" * 900) for _ in range(3)]
    assert queue.result(ids[0]) == b"x" * 900
    assert "no room" in no_result(queue, ids[-1])
    stats = queue.stats()
    assert (stats.result_count, stats.results_refused) == (6, 3)
    assert stats.result_bytes <= 5000
    queue.configure(max_result_bytes=100_000)
    assert queue.result(done(b"y")) == b"y"


def test_the_count_of_bytes_is_true(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(result_ttl=60)
    for number in range(20):
        queue.write(number, shard_key="t")
        delivery = queue.read()
        delivery.progress(1, 2, "x" * number)
        delivery.ack(result=b"x" * number * 10)
    queue.write("on its way", shard_key="t")
    queue.read().progress(5)
    kept = {name: text for name, text in world.raw.hgetall(queue.state.keys.results).items() if name}
    stats = queue.stats()
    assert stats.result_bytes == sum(len(text) + 2 * len(name) + 200 for name, text in kept.items())
    assert stats.result_count == len(kept) == 21
    assert world.raw.zcard(queue.state.keys.result_ends) == 22


def test_results_end(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(result_ttl=60)
    ids = queue.write_many([(number, "t") for number in range(3)])
    queue.ack_many(queue.read_many(3), results=[1, 2, 3])
    keys = queue.state.keys
    for each in ids:  # as if they had been kept for so long
        text = world.raw.hget(keys.results, each)
        ends = int(text.split(b"|")[0]) - 61_000
        world.raw.hset(keys.results, each, b"%d|" % ends + text.split(b"|", 1)[1])
        world.raw.zadd(keys.result_ends, {each: ends})
    assert "long enough" in no_result(queue, ids[0])
    assert queue.status(ids[0]).state == "unknown"
    last = queue.write(4, shard_key="t")
    queue.read().ack(result=4)
    assert queue.result(last) == 4
    assert queue.stats().result_count == 1  # whoever keeps results forgets those that have ended
    assert world.raw.hlen(keys.results) == 2
    assert queue.stats().result_bytes == len(world.raw.hget(keys.results, last)) + 2 * len(last) + 200


@pytest.mark.usefixtures("real")
def test_readers_that_wait_forget_results(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(result_ttl=60)
    queue.write(1, shard_key="t")
    queue.read().ack(result=1)
    [name] = [each for each in world.raw.hkeys(queue.state.keys.results) if each]
    world.raw.zadd(queue.state.keys.result_ends, {name: 1})
    assert world.client().queue(queue.name).read_many(1, block=0.05) == []
    assert queue.stats().result_count == 0


def test_a_queue_without_results_takes_none(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue()
    message_id = queue.write(1, shard_key="t")
    with pytest.raises(ConfigError, match="result_ttl"):
        queue.result(message_id)
    delivery = queue.read()
    with pytest.raises(ConfigError, match="result_ttl"):
        delivery.ack(result=1)
    with pytest.raises(ConfigError, match="result_ttl"):
        queue.ack_many([delivery], results=[1])
    delivery.ack()
    queue.configure(result_ttl=5)
    again = queue.write(2, shard_key="t")
    queue.read().ack(result=2)
    other = world.client().queue(queue.name)
    assert other.result(again) == 2
    queue.configure(result_ttl=None)
    with pytest.raises(ConfigError, match="result_ttl"):
        queue.result(again)
    with pytest.raises(QueueMissing):
        world.client().queue("nowhere").result(again)


def test_as_many_results_as_deliveries(open_queue: OpenQueue) -> None:
    queue = open_queue(result_ttl=60)
    queue.write(1, shard_key="t")
    deliveries = queue.read_many(1)
    with pytest.raises(ConfigError, match="as many results"):
        queue.ack_many(deliveries, results=[1, 2])
    for text in ("abc", b"abc", memoryview(b"abc")):  # each is a sequence, and none is a list of results
        with pytest.raises(ConfigError, match="must be a list"):
            queue.ack_many(deliveries, results=text)
    assert queue.ack_many(deliveries, results=[1]) == []
    assert queue.ack_many([], results=[]) == []


def test_progress_is_part_of_the_status(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue()  # it needs no results
    message_id = queue.write(1, shard_key="t")
    assert queue.status(message_id).progress is None
    delivery = queue.read(visibility_timeout=20)
    assert delivery.progress(3, 10, "three |\n of ten")
    assert not delivery.progress(4, 10)  # within a second
    progress = queue.status(message_id).progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (3, 10, "three | of ten")
    assert delivery.progress(10, 10, "x" * 300)  # the last one
    assert not delivery.progress(10, 10)
    progress = queue.status(message_id).progress
    assert progress is not None
    assert (progress.done, progress.note) == (10, "x" * 200)
    delivery.nack(delay=30)
    again = queue.status(message_id)
    assert (again.state, again.progress) == ("delayed", progress)
    world.elapse(queue, 30)
    redelivered = queue.read(visibility_timeout=20)
    world.elapse(queue, 30)
    with pytest.raises(LeaseLost):
        redelivered.progress(1.5)
    for bad in ((-1,), (float("nan"),), (True,), ("1",), (1, -1), (1, 2, 3)):
        with pytest.raises(ConfigError):
            delivery.progress(*bad)


def test_progress_is_forgotten_with_the_ack(open_queue: OpenQueue, world: World) -> None:
    """Else a queue whose handlers tell their progress would be full of that of messages that are gone."""
    queue = open_queue()
    for _ in range(3):
        message_id = queue.write(1, shard_key="t")
        delivery = queue.read()
        assert delivery.progress(1, 2)
        delivery.ack()
        assert queue.status(message_id).progress is None
    stats = queue.stats()
    assert (stats.acked, stats.result_count, stats.result_bytes, stats.results_refused) == (3, 0, 0, 0)
    assert world.raw.hlen(queue.state.keys.results) == 1  # the sentinel
    queue.write(2, shard_key="t")
    lost = queue.read(visibility_timeout=20)
    assert lost.progress(1, 2)
    world.elapse(queue, 30)
    with pytest.raises(LeaseLost):
        lost.ack()
    assert queue.stats().result_count == 1, "it is the next holder's to forget"


def test_progress_of_a_cancelled_message_says_so(queue: Queue) -> None:
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    queue.cancel(message_id)
    with pytest.raises(MessageCancelled):
        delivery.progress(1)
    assert delivery.lost


def test_results_go_with_the_queue(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    queue.read().ack(result=1)
    queue.purge()
    assert queue.result(message_id) == 1
    queue.delete()
    assert not [key for key in world.stored() if f"{{{queue.name}}}" in key]


@pytest.fixture
def soon() -> Any:
    """Runs a function in a thread."""
    with ThreadPoolExecutor(64) as pool:
        yield pool.submit


Soon = Callable[..., Future[Any]]


@pytest.mark.everywhere
@pytest.mark.usefixtures("real")
def test_whoever_waits_gets_the_result_at_once(
    open_queue: OpenQueue, world: World, patient: Client, soon: Soon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks again by itself."""
    monkeypatch.setattr(awaiting, "LOOK_AFTER", 600.0)
    queue = open_queue(by=patient, result_ttl=60)
    others = [world.client(wait_slice=600.0).queue(queue.name) for _ in range(2)]
    ids = [queue.write(number, shard_key=f"t{number}") for number in range(10)]
    waits = [soon(each.result, message_id, timeout=60) for message_id in ids for each in (queue, *others, queue)]
    for each in (queue, *others):
        eventually(lambda each=each: len(result_waiting_of(each.state).waiters()) >= 10)  # type: ignore[misc]
    eventually(lambda: world.blocked(queue) == 3)  # one connection for each client
    for _ in ids:
        delivery = queue.read()
        delivery.ack(result=delivery.payload * 2)
    assert [each.result(30) for each in waits] == [number * 2 for number in range(10) for _ in range(4)]
    eventually(lambda: world.blocked(queue) == 0)


@pytest.mark.usefixtures("real")
def test_a_wait_ends_at_its_time(open_queue: OpenQueue, soon: Soon) -> None:
    queue = open_queue(result_ttl=60)
    message_id = queue.write(1, shard_key="t")
    waits = [soon(queue.result, message_id, timeout=0.1 + number / 50) for number in range(5)]
    for each in waits:
        with pytest.raises(ResultPending):
            each.result(30)
    assert result_waiting_of(queue.state).waiters() == ()


@pytest.mark.usefixtures("real")
def test_a_wait_learns_of_every_other_end(open_queue: OpenQueue, soon: Soon) -> None:
    queue = open_queue(result_ttl=60, max_deliveries=2)
    dead, gone, expired = queue.write_many([(number, f"t{number}") for number in range(3)])
    waits = {each: soon(queue.result, each, timeout=60) for each in (dead, gone, expired)}
    eventually(lambda: len(result_waiting_of(queue.state).waiters()) == 3)
    for _ in range(3):
        delivery = queue.read()
        if delivery.message_id == dead:
            delivery.reject("bad")
    queue.cancel(gone)
    queue.cancel(expired)
    with pytest.raises(MessageDead):
        waits[dead].result(30)
    for each in (gone, expired):
        with pytest.raises(NoResult):
            waits[each].result(30)


@pytest.mark.usefixtures("real")
def test_dead_letters_and_cancels_are_announced(
    open_queue: OpenQueue, world: World, soon: Soon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaiting, "LOOK_AFTER", 5.0)
    queue = open_queue(result_ttl=60, max_deliveries=2)
    waiter = world.client(wait_slice=5).queue(queue.name)
    rejected, worn, waiting, in_flight = ids = [queue.write(each, shard_key=each) for each in ("r", "w", "c", "f")]
    waits = {each: soon(waiter.result, each, timeout=60) for each in ids}
    eventually(lambda: len(result_waiting_of(waiter.state).waiters()) == 4 and world.blocked(queue))
    looked_at = result_waiting_of(waiter.state).looked_at
    queue.cancel(waiting)
    for delivery in queue.read_many(3):
        match delivery.payload:
            case "r":
                delivery.reject("bad")
            case "w":
                delivery.nack()
            case "f":
                queue.cancel(in_flight)
    queue.read().nack()
    for each, error in ((rejected, MessageDead), (worn, MessageDead), (waiting, NoResult), (in_flight, NoResult)):
        with pytest.raises(error):
            waits[each].result(30)
    assert result_waiting_of(waiter.state).looked_at == looked_at  # so all were told


@pytest.mark.usefixtures("real")
def test_an_end_that_nobody_announces_is_seen_beside_others_that_go_on(
    open_queue: OpenQueue, world: World, soon: Soon
) -> None:
    queue = open_queue(result_ttl=60)
    waiter = world.client(wait_slice=0.1).queue(queue.name)
    purged = queue.write("purged", shard_key="t")
    waits = [soon(waiter.result, purged, timeout=60) for _ in range(30)]
    eventually(lambda: len(result_waiting_of(waiter.state).waiters()) == 30)
    queue.purge()
    for number in range(5000):
        message_id = queue.write(number, shard_key="t")
        queue.read().ack(result=number)
        assert waiter.result(message_id) == number
        if all(each.done() for each in waits):
            break
    for each in waits:
        with pytest.raises(NoResult):
            each.result(0)


@pytest.mark.usefixtures("real")
def test_who_waits_while_the_result_comes_misses_nothing(open_queue: OpenQueue, world: World, soon: Soon) -> None:
    queue = open_queue(result_ttl=60)
    reader = world.client().queue(queue.name)
    for round_number in range(40):
        message_id = queue.write(round_number, shard_key="t")
        wait = soon(queue.result, message_id, timeout=60)
        reader.read(block=20).ack(result=round_number)
        assert wait.result(30) == round_number
