"""Dead letters: who becomes one, with what, that none is dropped, and the way back."""

from __future__ import annotations

import pytest

from shardq import Delivery, PartlyDone, Queue, QueueFull
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


@pytest.fixture
def short(open_queue: OpenQueue) -> Queue:
    """A queue that gives up after three deliveries."""
    return open_queue(streams=4, max_deliveries=3)


def fail(queue: Queue, world: World, times: int) -> Delivery:
    """Deliver the only message *times* times without success: nacks and lost leases in turn."""
    for number in range(times):
        delivery = queue.read()
        if number % 2:
            world.elapse(queue, 60)
        else:
            delivery.nack(error=f"failure {number}")
    return delivery


@pytest.mark.everywhere
def test_a_message_that_fails_too_often_becomes_a_dead_letter(short: Queue, world: World) -> None:
    message_id = short.write({"n": 1}, shard_key="t", headers={"trace": "x"})
    fail(short, world, 3)
    assert short.read_many(9) == []
    [letter] = short.dead()
    assert (letter.message_id, letter.shard_key, letter.reason) == (message_id, "t", "max deliveries")
    assert (letter.count, letter.last_error, dict(letter.headers)) == (3, "failure 2", {"trace": "x"})
    assert (letter.payload, letter.body, letter.tag) == ({"n": 1}, b"\x81\xa1n\x01", "m")
    stats = short.stats()
    assert (stats.dead, stats.dead_lettered, short.len()) == (1, 1, 0)
    assert world.census(short).problems() == []


def test_a_delivery_says_whether_its_message_became_a_dead_letter(short: Queue) -> None:
    short.write_many([(number, "t") for number in range(6)])
    acked, rejected, *others = short.read_many(6)
    assert not any(each.dead for each in (acked, rejected, *others))
    acked.ack()
    rejected.reject("no")
    short.nack_many(others[:2])
    short.ack_many(others[2:3])
    short.reject_many(others[3:], "no")
    assert [each.dead for each in (acked, rejected, *others)] == [False, True, False, False, False, True]


def test_a_message_whose_holders_die_becomes_a_dead_letter(short: Queue, world: World) -> None:
    short.write("poison", shard_key="t")
    for count in (1, 2, 3):
        assert short.read().count == count
        world.elapse(short, 60)
    assert short.read_many(9) == []
    [letter] = short.dead()
    assert (letter.reason, letter.count, letter.last_error) == ("max deliveries", 3, "lease ended")


def test_a_dead_letter_says_when_it_was_written_and_died(short: Queue) -> None:
    message_id = short.write(1, shard_key="t")
    short.read().reject("no")
    [letter] = short.dead()
    assert letter.written_at == int(message_id.partition("-")[0]) / 1000
    assert letter.written_at <= letter.died_at < letter.written_at + 60


def test_a_delayed_message_dies_as_any_other(short: Queue, world: World) -> None:
    message_id = short.write("late", shard_key="t", delay=60)
    world.elapse(short, 60)
    fail(short, world, 3)
    assert short.read_many(9) == []
    assert [letter.message_id for letter in short.dead()] == [message_id]
    assert world.census(short).problems() == []


def test_dead_letters_are_listed_oldest_first_in_pages(queue: Queue) -> None:
    ids = queue.write_many([(number, "t") for number in range(5)])
    found = {each.message_id: each for each in queue.read_many(9)}
    for message_id in ids:
        found[message_id].reject("no")
    first = queue.dead(2)
    rest = queue.dead(9, after=first[-1].entry_id)
    assert [letter.message_id for letter in first + rest] == ids
    assert queue.dead(9, after=rest[-1].entry_id) == []


def test_when_dead_letters_are_full_a_failed_message_waits_and_is_not_dropped(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, max_deliveries=2, max_dead=1)
    queue.write_many([(number, "t") for number in range(2)])
    for _ in range(2):
        for delivery in queue.read_many(9):
            delivery.nack(error="no")
    assert (queue.stats().dead, queue.stats().delayed) == (1, 1)
    for _ in range(3):
        world.elapse(queue, 10)
        assert queue.read_many(9) == []
    assert (queue.stats().dead, queue.stats().delayed) == (1, 1)
    assert world.census(queue).problems() == []
    queue.redrive(queue.dead())  # room again
    world.elapse(queue, 10)
    [back] = queue.read_many(9)
    assert [letter.count for letter in queue.dead()] == [2]
    back.ack()
    assert queue.len() == 0


def test_when_dead_letters_are_full_a_rejected_message_waits_and_is_not_delivered(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=4, max_dead=1)
    queue.write_many([(number, "t") for number in range(2)])
    for delivery in queue.read_many(9):
        delivery.reject(f"reason {delivery.payload}")
    for _ in range(3):
        world.elapse(queue, 10)
        assert queue.read_many(9) == []
    [first] = queue.dead()
    world.raw.xdel(queue.state.keys.dead, first.entry_id)
    world.elapse(queue, 10)
    assert queue.read_many(9) == []
    [second] = queue.dead()
    assert {first.reason, second.reason} == {"reason 0", "reason 1"}
    assert (second.count, second.last_error) == (1, second.reason)
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_a_redriven_message_keeps_its_id_headers_payload_and_count(queue: Queue, world: World) -> None:
    message_id = queue.write({"n": 1}, shard_key="t", headers={"trace": "x"})
    queue.read().nack(error="first")
    queue.read().reject("no such customer")
    assert queue.redrive(queue.dead()) == 1
    assert (queue.dead(), queue.stats().dead, queue.len(), queue.stats().written) == ([], 0, 1, 1)
    delivery = queue.read()
    assert (delivery.message_id, delivery.payload, delivery.shard_key) == (message_id, {"n": 1}, "t")
    assert (dict(delivery.headers), delivery.last_error) == ({"trace": "x"}, "no such customer")
    assert delivery.count == 3
    delivery.ack()
    assert (queue.len(), world.census(queue).problems()) == (0, [])
    assert world.raw.hlen(queue.state.keys.moved) == 1  # the sentinel


def test_a_redriven_message_has_all_its_deliveries_again(short: Queue, world: World) -> None:
    message_id = short.write(1, shard_key="t")
    for life in (1, 2):
        fail(short, world, 3)
        assert short.read_many(9) == []
        [letter] = short.dead()
        assert (letter.message_id, letter.count) == (message_id, 3 * life)
        assert short.redrive([letter]) == 1
    assert short.read().count == 7
    assert world.census(short).problems() == []


def test_a_redriven_message_forgets_its_deadline(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t", deadline=600)
    queue.read().reject("no")
    queue.redrive(queue.dead())
    assert b" x" not in world.raw.hget(queue.state.keys.bodies, queue.peek().messages[0].message_id.rpartition("-")[0])


def test_redriving_twice_moves_once(queue: Queue) -> None:
    queue.write(1, shard_key="t")
    queue.read().reject("no")
    letters = queue.dead()
    assert [queue.redrive(letters), queue.redrive(letters), queue.redrive([])] == [1, 0, 0]
    assert len(queue.read_many(9)) == 1


def buried(queue: Queue, count: int, key: str = "t") -> None:
    """So many dead letters of a shard key."""
    queue.write_many([(number, key) for number in range(count)])
    assert queue.reject_many(queue.read_many(count), "no") == []


@pytest.mark.parametrize("window", [0, 1])
def test_no_more_are_redriven_than_the_queue_has_room_for(open_queue: OpenQueue, world: World, window: int) -> None:
    queue = open_queue(streams=4, window=window, max_len=10, max_dead=100)
    buried(queue, 6)
    queue.write_many([(number, f"other-{number}") for number in range(6)])
    queue.write("later", shard_key="late", delay=60)
    with pytest.raises(PartlyDone, match=r"max_len = 10 messages.*: 3 dead letters were left") as partly:
        queue.redrive(queue.dead())
    assert partly.value.done == 3
    full = partly.value.__cause__
    assert isinstance(full, QueueFull)
    assert (full.bound, full.limit) == ("max_len", 10)
    stats = queue.stats()
    assert (stats.backlog, stats.delayed, stats.dead) == (9, 1, 3)
    with pytest.raises(QueueFull, match="3 dead letters were left"):
        queue.redrive(queue.dead())
    assert (queue.stats().dead, world.census(queue).problems()) == (3, [])
    assert queue.ack_many(queue.read_many(9)) == []
    assert (queue.redrive(queue.dead()), queue.stats().dead) == (3, 0)


def test_what_is_redriven_of_one_tenant_leaves_room_for_others(open_queue: OpenQueue) -> None:
    """As its writes do: it gets four fifths of the bound, and the letters of others are moved behind its own."""
    queue = open_queue(streams=4, max_len=10, max_dead=100)
    for key, count in (("loud", 5), ("loud", 5), ("quiet", 1)):
        buried(queue, count, key)
    with pytest.raises(PartlyDone, match="2 dead letters were left") as partly:
        queue.redrive(queue.dead())
    assert partly.value.done == 9
    assert [letter.shard_key for letter in queue.dead()] == ["loud"] * 2


@pytest.mark.once
def test_many_dead_letters_come_back(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2)
    queue.write_many([(number, f"tenant-{number % 5}") for number in range(250)])
    for delivery in queue.read_many(1000):
        delivery.reject("no")
    assert queue.redrive(queue.dead(1000)) == 250
    assert len(world.census(queue).returned) == 250
    assert queue.ack_many(queue.read_many(1000)) == []
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_dead_letters_do_not_show_what_they_hold(queue: Queue) -> None:
    queue.write(b"secret", shard_key="t")
    queue.read().reject("no")
    assert "secret" not in repr(queue.dead())


def test_what_waits_for_room_among_the_dead_letters_may_be_held_back_by_the_window(
    open_queue: OpenQueue, world: World
) -> None:
    queue = open_queue(streams=1, streams_per_shard=1, window=1, max_dead=1)
    queue.write_many([(number, "a") for number in range(20)])
    for each in queue.read_many(2):
        each.reject("poison")
    world.elapse(queue, 10)
    found = 0
    while batch := queue.read_many(3):
        found += len(batch)
        assert queue.ack_many(batch) == []
    assert found == 18
    assert world.census(queue).problems() == []
