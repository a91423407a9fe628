"""Messages that are given back uncounted: what failed was not their fault, so they lose no delivery by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardq import ConfigError, Delivery, Queue
from shardq.ops.read.give_back import unread
from shardq.ops.settle import settle
from shardq.ops.settle.settle import Settled
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

LATER = 50.0


def give_back(
    queue: Queue, deliveries: Sequence[Delivery], delay: float | Sequence[float] = 0.0, error: str = "down"
) -> list[Settled]:
    """Give these back uncounted."""
    held = [each.received for each in deliveries]
    return list(queue._client.run(settle.nack(queue.state, held, delay, error, counted=False)))


@pytest.mark.everywhere
def test_what_is_given_back_uncounted_may_be_delivered_as_often_as_before(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=2, max_deliveries=2)
    message_id = queue.write("x", shard_key="t")
    for at in range(5):
        delivery = queue.read()
        assert (delivery.message_id, delivery.count) == (message_id, 1)
        assert delivery.last_error == ("down" if at else "")
        assert give_back(queue, [delivery]) == [Settled.OK]
    assert [queue.read().nack(error="bad"), queue.read().nack()] == [True, False]
    assert queue.stats().dead == 1
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_it_waits_for_its_own_delay(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(2)])
    found = queue.read_many(2)
    assert give_back(queue, found, [0.0, LATER]) == [Settled.OK] * 2
    (now,) = queue.read_many(5)
    assert (now.message_id, queue.stats().delayed) == (found[0].message_id, 1)
    now.ack()
    world.elapse(queue, LATER)
    (later,) = queue.read_many(5)
    assert (later.message_id, later.count, later.last_error) == (found[1].message_id, 1, "down")


def a_stream(queue: Queue) -> None:
    queue.write_many([(number, "t") for number in range(4)])


def an_overflow(queue: Queue) -> None:
    """The window holds most of these back."""
    queue.write_many([(number, "flood") for number in range(30)])


def the_delayed(queue: Queue) -> None:
    for number in range(4):
        queue.write(number, shard_key="t", delay=1)


def the_dead(queue: Queue) -> None:
    queue.write_many([(number, "t") for number in range(4)])
    queue.reject_many(queue.read_many(4), "no good")
    queue.redrive(queue.dead(10))


def by_one(queue: Queue, found: list[Delivery]) -> None:
    for each in found:
        each.ack()


def by_many(queue: Queue, found: list[Delivery]) -> None:
    assert queue.ack_many(found) == []


def with_a_read(queue: Queue, found: list[Delivery]) -> None:
    queue.read_many(1, ack=found)


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.parametrize("fill", [a_stream, an_overflow, the_delayed, the_dead])
@pytest.mark.parametrize("ack", [by_one, by_many, with_a_read])
def test_nothing_stays_behind_when_it_is_acked(
    open_queue: OpenQueue,
    world: World,
    window: int,
    fill: Callable[[Queue], None],
    ack: Callable[[Queue, list[Delivery]], None],
) -> None:
    """An ack must know that something is stored of a message, though it is its first delivery that counts."""
    queue = open_queue(streams=2, window=window)
    fill(queue)
    world.elapse(queue, 1)
    found = queue.read_many(100)
    give_back(queue, found)
    found = queue.read_many(100)
    queue._client.run(unread(queue.state, [each.received for each in found], 60))  # as of a reply that was lost
    found = queue.read_many(100)
    assert {(each.count > 1, each.last_error) for each in found} == {(fill is the_dead, "down")}
    ack(queue, found)
    left = world.census(queue)
    assert (left.bodies, left.errors, left.problems(), queue.len()) == (set(), set(), [], 0)


def test_the_journal_tells_it_by_the_count(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, journal=1000)
    queue.write("x", shard_key="t")
    queue.read().nack()
    give_back(queue, [queue.read()], LATER)
    told = [(event.kind, event.count, event.due is not None) for event in queue.journal(100).events]
    assert told[2:] == [("nacked", 1, False), ("delivered", 2, False), ("nacked", 1, True)]


def test_only_the_holder_can_do_it(queue: Queue, world: World) -> None:
    queue.write("x", shard_key="t")
    delivery = queue.read()
    delivery.ack()
    assert give_back(queue, [delivery]) == [Settled.LOST]
    assert world.census(queue).errors == set()


def test_an_error_must_be_given(queue: Queue) -> None:
    queue.write("x", shard_key="t")
    delivery = queue.read()
    with pytest.raises(ConfigError, match="needs an error"):
        give_back(queue, [delivery], error=" ")
    delivery.ack()


@pytest.mark.once
@pytest.mark.parametrize("counted", [0, "no", None])
def test_counted_is_true_or_false(queue: Queue, counted: Any) -> None:
    """A text such as "no" would count."""
    queue.write("x", shard_key="t")
    delivery = queue.read()
    with pytest.raises(ConfigError, match="counted must be True or False"):
        queue.nack_many([delivery], counted=counted)
    delivery.ack()
