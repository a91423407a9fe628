"""delay and deadline: not before, and not after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from shardq import ConfigError, Empty, MessageNotFound, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually


@pytest.mark.everywhere
def test_a_delayed_message_is_not_handed_out_before_it_is_due(queue: Queue, world: World) -> None:
    message_id = queue.write("later", shard_key="t", delay=60, headers={"a": "1"})
    assert queue.read_many(9) == []
    assert (queue.len(), queue.stats().delayed) == (0, 1)
    world.elapse(queue, 50)
    assert queue.read_many(9) == []
    world.elapse(queue, 10)
    delivery = queue.read()
    assert (delivery.message_id, delivery.payload, delivery.count) == (message_id, "later", 1)
    assert dict(delivery.headers) == {"a": "1"}
    delivery.ack()
    assert (queue.len(), world.census(queue).problems()) == (0, [])


@pytest.mark.everywhere
def test_delayed_messages_come_in_the_order_of_their_due_times(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1)
    for delay in (30, 10, 20):
        queue.write(delay, shard_key="t", delay=delay)
    found = []
    for _ in range(3):
        world.elapse(queue, 10)
        found.append(queue.read().payload)
    assert found == [10, 20, 30]


def test_a_delayed_message_comes_in_the_turn_of_its_shard(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=1)
    [stream] = queue.state.shard("t") if queue.read_many(1) == [] else []
    queue.write("later", shard_key="t", delay=60)
    world.elapse(queue, 60)
    queue.len()
    queue.write("other", shard_key=next(key for key in map(str, range(99)) if queue.state.shard(key) != (stream,)))
    assert sorted(each.payload for each in queue.read_many(9)) == ["later", "other"]
    assert world.census(queue).problems() == []


def test_a_delayed_message_that_fails_is_delivered_again(queue: Queue, world: World) -> None:
    queue.write("later", shard_key="t", delay=60)
    world.elapse(queue, 60)
    queue.read().nack(error="no")
    again = queue.read()
    assert (again.count, again.last_error) == (2, "no")
    world.elapse(queue, 60)
    assert queue.read().count == 3
    assert world.census(queue).problems() == []


def test_due_messages_survive_a_queue_that_got_smaller_meanwhile(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=32)
    ids = [queue.write(number, shard_key=f"tenant-{number}", delay=60) for number in range(20)]
    assert queue.resize(2) == (2, 2)
    world.elapse(queue, 60)
    assert sorted(each.message_id for each in queue.read_many(100)) == sorted(ids)


@pytest.mark.everywhere
def test_a_message_past_its_deadline_is_never_handed_out_and_is_counted(queue: Queue, world: World) -> None:
    queue.write("stale", shard_key="t", deadline=0.05)
    queue.write("fresh", shard_key="t", deadline=600)
    _let_pass(world, queue, 0.05)
    assert [each.payload for each in queue.read_many(9)] == ["fresh"]
    stats = queue.stats()
    assert (stats.expired, stats.in_flight, stats.backlog) == (1, 1, 0)
    assert world.census(queue).problems() == []


@pytest.mark.parametrize("window", [0, 1])
def test_a_single_read_passes_over_what_is_past_its_deadline(open_queue: OpenQueue, world: World, window: int) -> None:
    queue = open_queue(streams=1, streams_per_shard=1, window=window)
    queue.write("stale", shard_key="t", deadline=0.05)
    queue.write("fresh", shard_key="t")
    _let_pass(world, queue, 0.05)
    assert queue.read().payload == "fresh"
    assert (queue.stats().expired, queue.len()) == (1, 1)


def test_a_message_past_its_deadline_is_not_delivered_again(queue: Queue, world: World) -> None:
    for deadline in (0.2, 1, 5):  # until it is read before it is past
        queue.write("stale", shard_key="t", deadline=deadline)
        if found := queue.read_many(1):
            break
    found[0].nack()
    expired = queue.stats().expired
    _let_pass(world, queue, deadline)
    with pytest.raises(Empty):
        queue.read()
    assert (queue.stats().expired, queue.len()) == (expired + 1, 0)


def test_a_delayed_message_may_have_a_deadline_after_its_due_time(queue: Queue, world: World) -> None:
    queue.write("in time", shard_key="t", delay=30, deadline=600)
    message_id = queue.write("too late", shard_key="t", delay=0.05, deadline=0.1)
    _let_pass(world, queue, 0.1)
    world.elapse(queue, 30)
    assert [each.payload for each in queue.read_many(9)] == ["in time"]
    with pytest.raises(MessageNotFound):
        queue.cancel(message_id)
    assert world.census(queue).problems() == []


def test_the_pickup_delay_counts_from_the_due_time(queue: Queue) -> None:
    queue.write(1, shard_key="t", delay=0.05)
    assert queue.read(block=20).pickup_delay < 10


@pytest.mark.parametrize(
    "times",
    [
        {"delay": -1},
        {"delay": "5"},
        {"delay": float("nan")},
        {"deadline": 0},
        {"delay": 5, "deadline": 5},
        {"delay": 1e12},
    ],
    ids=str,
)
def test_bad_times_are_refused_before_anything_is_written(queue: Queue, world: World, times: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"delay|deadline"):
        queue.write(1, shard_key="t", **times)
    assert world.stored() == set()


def _let_pass(world: World, queue: Queue, seconds: float) -> None:
    """Wait until the server's clock went on by *seconds*: deadlines are kept with the messages."""
    clock: Callable[[], int] = lambda: world.census(queue).now  # noqa: E731
    start = clock()
    eventually(lambda: clock() > start + seconds * 1000)


@pytest.mark.usefixtures("real")
def test_the_pickup_delay_of_a_retry_counts_from_when_it_was_due(open_queue: OpenQueue) -> None:
    """Whatever was asked for is not in it: the delay of a nack, a lease that ended, the time as a dead letter."""
    queue, lasts = open_queue(streams=4), 0.3
    queue.write("work", shard_key="t")
    written = time.monotonic()
    queue.read().nack(delay=lasts)
    given_back = queue.read(block=20, visibility_timeout=lasts)
    assert given_back.pickup_delay <= time.monotonic() - written - lasts + 0.01
    ended = queue.read(block=20)
    assert ended.pickup_delay <= time.monotonic() - written - 2 * lasts + 0.01
    ended.reject("bad")
    rejected = time.monotonic()
    assert queue.redrive(queue.dead()) == 1
    assert queue.read(block=20).pickup_delay <= time.monotonic() - rejected + 0.01


def test_the_pickup_delay_of_a_replaced_message_counts_from_its_first_write(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4)
    queue.write("first", shard_key="t", unique_key="k", delay=60)
    world.elapse(queue, 90)
    queue.write("second", shard_key="t", unique_key="k", on_conflict="replace")
    delivery = queue.read()
    assert delivery.payload == "second"
    assert 29 < delivery.pickup_delay < 60
