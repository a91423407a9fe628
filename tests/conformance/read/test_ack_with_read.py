"""`read(ack=previous)`: the ack and the read in one round trip, and what becomes of either when the other fails."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

import pytest

from shardq import Client, ConfigError, Delivery, Empty, LeaseLost, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually


@pytest.fixture
def delivery(queue: Queue) -> Delivery:
    """One message in flight for 30 s."""
    queue.write("first", shard_key="t")
    return queue.read(visibility_timeout=30)


def settled(queue: Queue) -> tuple[int, int]:
    """How many were acked, and how many are left."""
    return queue.stats().acked, queue.len()


@pytest.mark.everywhere
def test_a_queue_is_worked_off_one_at_a_time_with_one_call_each(queue: Queue, world: World) -> None:
    queue.write_many([(number, f"t{number % 7}") for number in range(50)])
    seen: list[Any] = []
    delivery = None
    with contextlib.suppress(Empty):
        while True:
            delivery = queue.read(ack=delivery)
            seen.append(delivery.payload)
    assert sorted(seen) == list(range(50))
    assert settled(queue) == (50, 0)
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_batches_are_acked_by_the_next_batch(queue: Queue, world: World) -> None:
    queue.write_many([(number, f"t{number % 7}") for number in range(60)])
    seen: list[Any] = []
    found: list[Delivery] = []
    while found := queue.read_many(25, ack=found):
        seen += [each.payload for each in found]
    assert sorted(seen) == list(range(60))
    assert settled(queue) == (60, 0)
    assert world.census(queue).problems() == []


def test_more_can_be_acked_than_one_script_takes(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(450)])
    found = queue.read_many(450)
    queue.write("next", shard_key="t")
    assert queue.read(ack=found).payload == "next"
    assert (settled(queue), all(each.answered for each in found)) == ((450, 1), True)


def test_without_a_message_the_ack_counts_all_the_same(queue: Queue, delivery: Delivery) -> None:
    with pytest.raises(Empty):
        queue.read(ack=delivery, block=0.05)
    assert settled(queue) == (1, 0)
    assert (delivery.answered, delivery.lost) == (True, False)


def test_the_ack_is_not_held_up_by_a_read_that_waits(queue: Queue, delivery: Delivery, real: None) -> None:
    found: list[Delivery] = []
    reader = threading.Thread(target=lambda: found.append(queue.read(ack=delivery, block=30)))
    reader.start()
    eventually(lambda: settled(queue) == (1, 0))
    assert found == []
    queue.write("next", shard_key="t")
    reader.join(30)
    assert [each.payload for each in found] == ["next"]


def test_what_was_answered_is_not_acked_again(
    queue: Queue, delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop that anybody writes first gives the same delivery to the next read after Empty."""
    for _ in range(2):
        with pytest.raises(Empty):
            queue.read(ack=delivery)
    assert (settled(queue), delivery.lost, caplog.records) == ((1, 0), False, [])


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_what_was_settled_by_itself_is_left_alone(
    queue: Queue, delivery: Delivery, settle: str, caplog: pytest.LogCaptureFixture
) -> None:
    getattr(delivery, settle)(*(["why"] if settle == "reject" else []))
    before = queue.stats()
    found = queue.read_many(1, ack=delivery)
    assert (len(found), delivery.answered, delivery.lost) == (before.backlog, True, False)
    assert (queue.stats().acked, caplog.records) == (before.acked, [])


def test_the_read_gets_its_message_though_the_lease_before_was_lost(
    queue: Queue, delivery: Delivery, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.elapse(queue, 30)
    again = queue.read()
    queue.write("next", shard_key="t")
    with caplog.at_level(logging.WARNING):
        after = queue.read(ack=delivery)
    assert (after.payload, delivery.answered, delivery.lost) == ("next", True, True)
    assert f"1 leases had ended before their ack, the first of message {delivery.message_id}" in caplog.text
    again.ack()  # its new holder has lost nothing
    after.ack()
    assert settled(queue) == (2, 0)


def test_a_cancelled_message_is_told_as_a_lost_one(queue: Queue, delivery: Delivery) -> None:
    assert queue.cancel(delivery.message_id) == "in flight"
    queue.write("next", shard_key="t")
    assert queue.read(ack=delivery).payload == "next"
    assert (delivery.lost, queue.stats().cancelled, queue.stats().acked) == (True, 1, 0)


def test_of_several_only_those_are_lost_whose_leases_ended(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(3)])
    lost = queue.read(visibility_timeout=10)
    held = queue.read_many(2, visibility_timeout=60)
    world.elapse(queue, 10)
    (again,) = queue.read_many(9, ack=[held[0], lost, held[1]])
    assert (again.message_id, again.count) == (lost.message_id, 2)
    assert [each.lost for each in (held[0], lost, held[1])] == [False, True, False]
    assert settled(queue) == (2, 1)


def test_a_delivery_that_comes_twice_counts_once(queue: Queue, delivery: Delivery) -> None:
    assert queue.read_many(1, ack=[delivery, delivery]) == []
    assert (settled(queue), delivery.lost) == ((1, 0), False)


def test_what_the_ack_makes_room_for_is_there_for_the_read(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, max_in_flight=1)
    queue.write_many([(number, "t") for number in range(20)])
    delivery, seen = queue.read(), 1
    assert queue.read_many(1) == []
    while found := queue.read_many(1, ack=delivery):
        (delivery,), seen = found, seen + 1
    assert (seen, settled(queue)) == (20, (20, 0))
    assert world.census(queue).problems() == []


def test_a_server_that_lost_its_scripts_gets_them_again_and_the_order_stays(
    open_queue: OpenQueue, world: World, real: None
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, max_in_flight=1)
    queue.write_many([(number, "t") for number in range(3)])
    delivery = queue.read()
    world.raw.script_flush()
    queue.read_many(1)  # the server knows this script again, and not that of the ack
    assert [each.payload for each in queue.read_many(1, ack=delivery)] == [1]
    assert settled(queue) == (1, 2)


def test_an_acked_message_is_gone_for_its_own_delivery(queue: Queue, delivery: Delivery) -> None:
    queue.read_many(1, ack=delivery)
    with pytest.raises(LeaseLost):
        delivery.ack()


def test_with_a_journal_the_ack_is_an_event(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, journal=100)
    message_id = queue.write("first", shard_key="t")
    assert queue.read_many(1, ack=queue.read()) == []
    assert [(event.kind, event.message_id) for event in queue.journal().events][-1] == ("acked", message_id)


@pytest.mark.parametrize("bad", ["text", 5, [None], ["text"], object()])
def test_only_deliveries_can_be_acked(queue: Queue, bad: Any) -> None:
    queue.write("stays", shard_key="t")
    with pytest.raises(ConfigError, match="deliver"):
        queue.read(ack=bad)
    assert queue.stats().in_flight == 0


def test_nothing_is_sent_if_one_of_them_is_of_another_queue(
    client: Client, queue: Queue, delivery: Delivery, queue_name: str
) -> None:
    other = client.queue(f"{queue_name}-other", create=True)
    other.write("other", shard_key="t")
    queue.write("stays", shard_key="t")
    with pytest.raises(ConfigError, match=f"is of queue '{queue_name}-other'"):
        queue.read(ack=[delivery, other.read()])
    assert (queue.stats().in_flight, queue.stats().acked, delivery.answered) == (1, 0, False)


def test_a_delivery_of_another_client_is_acked_there(
    queue: Queue, delivery: Delivery, open_queue: OpenQueue, world: World
) -> None:
    with pytest.raises(ConfigError, match="another client"):
        open_queue(by=world.client()).read(ack=delivery)
    assert queue.stats().in_flight == 1


def test_no_delivery_at_all_is_an_ordinary_read(queue: Queue) -> None:
    queue.write("one", shard_key="t")
    assert queue.read(ack=None).payload == "one"
    assert queue.read_many(1, ack=[]) == []
