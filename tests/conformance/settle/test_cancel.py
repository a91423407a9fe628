"""cancel: a message is removed wherever it is, and its holder learns it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shardq import ConfigError, Delivery, LeaseLost, MessageCancelled, MessageNotFound, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.settle.test_settle import VERBS, each_verb
from tests.conformance.world import World


@pytest.mark.everywhere
def test_a_waiting_message_is_removed(queue: Queue, world: World) -> None:
    ids = queue.write_many([(number, "t") for number in range(8)])
    for index in (0, 3, 7):  # the head of a stream, and others
        assert queue.cancel(ids[index]) == "removed"
    assert (queue.len(), queue.stats().cancelled) == (5, 3)
    assert world.census(queue).problems() == []
    assert sorted(each.payload for each in queue.read_many(9)) == [1, 2, 4, 5, 6]
    assert queue.stats().vanished == 0


def test_a_delayed_message_is_removed(queue: Queue, world: World) -> None:
    message_id = queue.write(1, shard_key="t", delay=60)
    assert queue.cancel(message_id) == "removed"
    world.elapse(queue, 60)
    assert queue.read_many(9) == []
    assert (queue.stats().delayed, world.census(queue).problems()) == (0, [])


def test_a_message_that_was_given_back_is_removed(queue: Queue, world: World) -> None:
    waiting, later = queue.write(1, shard_key="t"), queue.write(2, shard_key="t")
    for each in queue.read_many(2):
        each.nack(delay=60 if each.message_id == later else 0)
    assert (queue.cancel(waiting), queue.cancel(later)) == ("removed", "removed")
    world.elapse(queue, 60)
    assert queue.read_many(9) == []
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_a_message_that_has_come_due_is_removed(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=1)
    queue.write("first", shard_key="t")
    queue.read().nack()  # it will be delivered before what comes due
    message_id = queue.write("due", shard_key="t", delay=60)
    world.elapse(queue, 60)
    assert queue.read().payload == "first"  # and lets in what is due
    assert world.census(queue).returned == {f"d:{message_id[:-2]}"}
    assert queue.cancel(message_id) == "removed"
    assert (queue.read_many(9), world.census(queue).problems()) == ([], [])


@pytest.mark.everywhere
@each_verb
def test_the_holder_of_a_cancelled_message_learns_it(
    queue: Queue, world: World, verb: Callable[[Delivery], None]
) -> None:
    queue.write("kept", shard_key="t")
    message_id = queue.write("cancelled", shard_key="t")
    delivery = next(each for each in queue.read_many(2) if each.message_id == message_id)
    assert queue.cancel(message_id) == "in flight"
    assert (queue.len(), queue.stats().in_flight) == (2, 2)  # somebody works on it still
    with pytest.raises(MessageCancelled):
        verb(delivery)
    keeps = verb in (VERBS["Delivery.extend"], VERBS["Delivery.progress"])  # they do not give up the lease
    held = 2 if keeps else 1
    assert (queue.len(), world.census(queue).problems()) == (held, [])
    world.elapse(queue, 60)
    assert [each.payload for each in queue.read_many(9)] == ["kept"]
    assert (queue.dead(), world.census(queue).problems()) == ([], [])


def test_a_cancelled_message_whose_lease_ends_is_not_delivered_again(queue: Queue, world: World) -> None:
    """Defect 13: cancelling left ghosts in the pending lists and in the tables for ever."""
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    queue.cancel(message_id)
    world.elapse(queue, 60)
    assert queue.read_many(9) == []
    census = world.census(queue)
    assert (census.leased, census.bodies, queue.len(), queue.stats().in_flight) == ({}, set(), 0, 0)
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert world.raw.scard(queue.state.keys.cancelled) == 1  # the sentinel
    assert world.raw.hlen(queue.state.keys.errors) == 1


def test_cancelling_again_says_the_same_while_the_holder_has_it(queue: Queue) -> None:
    message_id = queue.write(1, shard_key="t")
    delivery = queue.read()
    assert [queue.cancel(message_id), queue.cancel(message_id)] == ["in flight"] * 2
    assert queue.stats().cancelled == 1
    with pytest.raises(MessageCancelled):
        delivery.ack()


def test_what_is_settled_or_never_was_is_not_found(queue: Queue) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read().ack()
    for each in (message_id, "1700000000000-99-0", "1700000000000-99-d", "1700000000000-99-4095"):
        with pytest.raises(MessageNotFound):
            queue.cancel(each)
    assert queue.stats().cancelled == 0


@pytest.mark.parametrize("bad", ["", "x", "1-1", "1-1-9999x", "1-1-0\n", None, 7, b"1-1-0"], ids=repr)
def test_what_is_not_an_id_is_refused_before_anything_is_written(queue: Queue, world: World, bad: str) -> None:
    with pytest.raises(MessageNotFound if isinstance(bad, str) else ConfigError, match="message_id"):
        queue.cancel(bad)
    assert world.stored() == set()


def test_a_redriven_message_is_cancelled_by_its_own_id(queue: Queue, world: World) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read().reject("no")
    queue.redrive(queue.dead())
    assert queue.cancel(message_id) == "removed"
    assert (queue.read_many(9), world.census(queue).problems()) == ([], [])
    assert world.raw.hlen(queue.state.keys.moved) == 1


@pytest.mark.parametrize("end", ["ack", "nack", "reject", "lease"])
def test_a_redriven_message_in_flight_is_cancelled_by_its_own_id_and_again(
    queue: Queue, world: World, end: str
) -> None:
    message_id = queue.write(1, shard_key="t")
    queue.read().reject("no")
    queue.redrive(queue.dead())
    delivery = queue.read(visibility_timeout=60)
    assert (queue.cancel(message_id), queue.cancel(message_id)) == ("in flight", "in flight")
    if end == "lease":
        world.elapse(queue, 60)
        assert queue.read_many(9) == []
    else:
        with pytest.raises(MessageCancelled):
            getattr(delivery, end)(*(["no"] if end == "reject" else []))
    with pytest.raises(MessageNotFound):
        queue.cancel(message_id)
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_any_client_may_cancel(open_queue: OpenQueue, world: World) -> None:
    message_id = open_queue(streams=4).write(1, shard_key="t")
    other = open_queue(by=world.client())
    assert other.cancel(message_id) == "removed"
    assert other.len() == 0


def test_many_cancelled_in_the_middle_of_what_waits_hide_nothing_behind_them(queue: Queue, world: World) -> None:
    """Each read passes over what was cancelled in bounded pieces, and says that there is more."""
    ids = queue.write_many([(number, "t") for number in range(1500)])
    for each in ids[50:1450]:
        assert queue.cancel(each) == "removed"
    assert (queue.len(), world.census(queue).problems()) == (100, [])
    found: list[object] = []
    while some := queue.read_many(50):
        assert queue.ack_many(some) == []
        found += [each.payload for each in some]
    assert found == [*range(50), *range(1450, 1500)]
    assert (queue.len(), queue.stats().vanished, world.census(queue).problems()) == (0, 0, [])


@pytest.mark.parametrize("order", ["forwards", "backwards", "inside out", "at random"])
def test_what_waits_can_be_cancelled_whole_in_any_order(queue: Queue, world: World, order: str, seed: int) -> None:
    ids = queue.write_many([(number, "t") for number in range(600)])
    orders = {
        "forwards": ids,
        "backwards": ids[::-1],
        "inside out": [*ids[300:], *ids[299::-1]],
        "at random": random.Random(seed).sample(ids, len(ids)),
    }
    for number, each in enumerate(orders[order]):
        assert queue.cancel(each) == "removed"
        if number % 100 == 0:
            assert world.census(queue).problems() == []
    assert (queue.len(), world.census(queue).problems()) == (0, [])
    assert world.raw.hlen(queue.state.keys.bodies) == 1, "nothing is left but the sentinel"
    queue.write("next", shard_key="t")
    assert queue.read().payload == "next"


def test_children_whose_messages_were_cancelled_hide_no_other_child(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=1, parents=1)
    queue.write("first", shard_key="p/0")
    for number in range(200):
        queue.write(number, shard_key=f"p/{number}")
    assert queue.read().payload == "first"
    waiting = queue.peek(300, state="held_back").messages
    for each in waiting[:-1]:
        assert queue.cancel(each.message_id) == "removed"
    assert queue.read().message_id == waiting[-1].message_id
    assert (queue.read_many(9), world.census(queue).problems()) == ([], [])
