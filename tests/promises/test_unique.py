"""A unique key is taken as long as its message can still be delivered, and no longer."""

from __future__ import annotations

import pytest

from shardq import Queue, UniqueConflict
from shardq.model.message import OnConflict
from tests.conformance.world import World, raw_client
from tests.promises.conftest import OpenQueue
from tests.waiting import eventually

CONFLICTS = ["existing", "raise", "replace"]


def write_over(queue: Queue, deadline: float = 0.05) -> str:
    """A message with the key, whose deadline is over; no worker has looked since."""
    queue.write("first", shard_key="t", unique_key="k", deadline=deadline)
    first = queue.write("same", shard_key="t", unique_key="k", deadline=deadline)
    written = queue.stats().time
    eventually(lambda: queue.stats().time > written + deadline, what="the deadline is over")
    return first


def write_again(queue: Queue, on_conflict: OnConflict) -> str:
    """Write a successor, which must be a message of its own."""
    try:
        found = queue.write("next", shard_key="t", unique_key="k", on_conflict=on_conflict)
    except UniqueConflict as error:
        raise AssertionError("the message that has the key is over") from error
    assert found.is_new
    return found


@pytest.mark.parametrize("on_conflict", CONFLICTS)
def test_a_unique_message_whose_deadline_is_over_does_not_swallow_its_successor(
    open_queue: OpenQueue, on_conflict: OnConflict
) -> None:
    queue = open_queue(streams=4)
    first = write_over(queue)
    later = write_again(queue, on_conflict)
    assert later != first
    assert [(each.message_id, each.payload) for each in queue.read_many(9)] == [(later, "next")]


def test_the_successor_of_a_unique_message_that_is_over_has_the_key(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    write_over(queue)
    later = write_again(queue, "existing")
    assert queue.write("third", shard_key="t", unique_key="k") == later
    queue.read().ack()
    assert queue.write("fourth", shard_key="t", unique_key="k").is_new


def wait_for_room(queue: Queue, how: str) -> None:
    """A message with the key is to be a dead letter, and there is no room among these."""
    queue.write("filler", shard_key="other")
    queue.read().reject("no")
    queue.write("first", shard_key="t", unique_key="k")
    if how == "rejected":
        queue.read().reject("no")
    else:
        queue.read().nack()
        queue.read().nack()
    assert queue.read_many(9) == []
    assert len(queue.dead()) == 1


@pytest.mark.parametrize("how", ["rejected", "out of deliveries"])
@pytest.mark.parametrize("on_conflict", CONFLICTS)
def test_a_unique_message_on_its_way_to_full_dead_letters_does_not_swallow_its_successor(
    open_queue: OpenQueue, how: str, on_conflict: OnConflict
) -> None:
    queue = open_queue(streams=4, max_dead=1, max_deliveries=2)
    wait_for_room(queue, how)
    later = write_again(queue, on_conflict)
    assert [(each.message_id, each.payload) for each in queue.read_many(9)] == [(later, "next")]


def test_a_unique_message_that_can_still_be_delivered_keeps_its_key(open_queue: OpenQueue) -> None:
    """However often it was given back, and while it is delayed."""
    queue = open_queue(streams=4)
    first = queue.write("first", shard_key="t", unique_key="k", deadline=600)
    for delay in (0, 600):
        delivery = queue.read()
        assert queue.write("next", shard_key="t", unique_key="k") == first
        delivery.nack(delay=delay)
        assert queue.write("next", shard_key="t", unique_key="k") == first


def test_a_message_that_is_redriven_has_no_unique_key_any_more(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.write("first", shard_key="t", unique_key="k")
    queue.read().reject("no")
    assert queue.redrive(queue.dead()) == 1
    assert queue.write("second", shard_key="t", unique_key="k").is_new
    assert {each.payload for each in queue.read_many(9)} == {"first", "second"}


def test_a_unique_message_whose_last_lease_ended_does_not_swallow_its_successor(
    open_queue: OpenQueue, server_url: str
) -> None:
    """Though nobody may have come upon it yet: its tenant is paused."""
    queue = open_queue(streams=4, max_deliveries=2)
    queue.write("first", shard_key="t", unique_key="k")
    queue.read().nack()
    assert queue.read().payload == "first"
    queue.pause("t")
    with raw_client(server_url) as raw:
        World(server_url, raw).elapse(queue, 3000)
    assert queue.read_many(9) == []
    write_again(queue, "existing")
    queue.resume("t")
    assert [each.payload for each in queue.read_many(9)] == ["next"]
