"""Messages that ought to be dead while the dead letters are full: they wait, are tried again, and delay nobody."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shardq import Delivery, Message, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import sound
from tests.conformance.world import World

FAR = 1000.0


def drained(queue: Queue, batch: int) -> list[Delivery]:
    """Read and ack all there is."""
    found: list[Delivery] = []
    while some := queue.read_many(batch):
        found += some
        assert queue.ack_many(some) == []
    return found


@pytest.mark.everywhere
@pytest.mark.parametrize("batch", [1, 7, 50])
def test_what_waits_for_room_takes_no_other_message_with_it(open_queue: OpenQueue, world: World, batch: int) -> None:
    """It was delayed, so it lies in the store, and finds no room when it is tried again."""
    queue = open_queue(streams=1, streams_per_shard=1, window=1, max_dead=1)
    queue.write_many([Message(number, "a", delay=FAR) for number in range(3)])
    world.elapse(queue, FAR)
    for each in queue.read_many(3):
        each.reject("poison")
    wanted = queue.write_many([(number, key) for number in range(19) for key in ("a", "b")])
    world.elapse(queue, FAR)
    found = drained(queue, batch)
    assert sound(queue, world)
    assert queue.write("next", shard_key="a") in {each.message_id for each in drained(queue, batch)}
    assert {each.message_id for each in found} == set(wanted)
    stats = queue.stats()  # on a slow machine what waits for room is due again by now
    assert (stats.dead, stats.backlog + stats.delayed, stats.in_flight) == (1, 2, 0)
    assert sound(queue, world)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 9, 40])
def test_beside_full_dead_letters_every_other_message_is_delivered(
    open_queue: OpenQueue, world: World, real: None, rng: random.Random, batch: int
) -> None:
    """Some of them delayed, some rejected; the ones that wait for room come due again and again meanwhile."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1, max_dead=3)
    keys = [f"tenant-{number}" for number in range(6)]
    alive: set[str] = set()
    poisoned: set[str] = set()
    for _ in range(12):
        some = [Message(rng.random() < 0.2, rng.choice(keys), delay=rng.choice((None, FAR))) for _ in range(20)]
        alive.update(queue.write_many(some))
        world.elapse(queue, FAR)
        for each in queue.read_many(batch):
            alive.discard(each.message_id)
            if each.payload:
                each.reject("poison")
                poisoned.add(each.message_id)
            else:
                each.ack()
        assert sound(queue, world)
    while found := queue.read_many(batch):
        alive -= {each.message_id for each in found}
        poisoned |= {each.message_id for each in found if each.payload}
        assert queue.reject_many([each for each in found if each.payload], "poison") == []
        assert queue.ack_many([each for each in found if not each.payload]) == []
        world.elapse(queue, FAR)
        assert sound(queue, world)
    assert alive == set()
    stats = queue.stats()
    assert (stats.dead, stats.delayed + stats.backlog) == (3, len(poisoned) - 3)


def test_a_rejected_message_stays_rejected_whatever_the_limit_becomes(open_queue: OpenQueue, world: World) -> None:
    """Also one that found no room at its last delivery, and none when it was tried again."""
    queue = open_queue(streams=2, streams_per_shard=2, max_deliveries=2, max_dead=1)
    queue.write_many([(number, "a") for number in range(4)])
    queue.nack_many(queue.read_many(9))
    for each in queue.read_many(9):
        each.reject("poison")
    for _ in range(2):
        world.elapse(queue, FAR)
        assert queue.read_many(9) == []
    queue.configure(max_deliveries=1000)
    world.elapse(queue, FAR)
    assert queue.read_many(9) == []
    queue.configure(max_dead=100)
    world.elapse(queue, FAR)
    assert queue.read_many(9) == []
    assert Counter((each.reason, each.count) for each in queue.dead()) == {("poison", 2): 4}
    assert world.census(queue).problems() == []


def test_a_nack_keeps_to_the_limit_that_the_queue_has_now(open_queue: OpenQueue, world: World) -> None:
    """Not to the one of when its client last looked."""
    stale, other = open_queue(streams=2, max_deliveries=2), open_queue(by=world.client())
    stale.write_many([(number, "a") for number in range(2)])
    stale.nack_many(stale.read_many(9))
    first, second = stale.read_many(9)
    other.configure(max_deliveries=3)
    first.nack(error="again")
    assert stale.dead() == []
    other.configure(max_deliveries=2, max_dead=1)
    second.nack(error="no")
    assert [each.count for each in stale.dead()] == [2]
    assert world.census(stale).problems() == []


def test_no_client_fills_the_dead_letters_beyond_the_bound_that_they_have_now(
    open_queue: OpenQueue, world: World
) -> None:
    stale, other = open_queue(streams=2, max_deliveries=2), open_queue(by=world.client())
    stale.write_many([(number, "a") for number in range(6)])
    held = stale.read_many(9)
    other.configure(max_dead=2)
    assert stale.reject_many(held, "no") == []
    world.elapse(stale, FAR)
    assert stale.read_many(9) == []
    assert (stale.stats().dead, stale.stats().delayed) == (2, 4)


def test_a_read_keeps_to_the_limits_that_the_queue_has_now(open_queue: OpenQueue, world: World) -> None:
    stale, other = open_queue(streams=2, max_deliveries=2), open_queue(by=world.client())
    stale.write("work", shard_key="a")
    for _ in range(2):
        stale.read()
        world.elapse(stale, FAR)
    other.configure(max_deliveries=3)
    assert [each.count for each in stale.read_many(9)] == [3]
    assert stale.dead() == []
