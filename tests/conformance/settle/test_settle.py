"""ack, nack, reject, extend: what they do, and that only the holder of a live lease can do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shardq import Client, ConfigError, Delivery, Empty, LeaseLost, Queue
from shardq.ops.settle.settle import Settled, ack
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.surface import calls, differences, not_called

Settle = Callable[[Delivery], object]
VERBS: dict[str, Settle] = {
    "Delivery.ack": lambda delivery: delivery.ack(),
    "Delivery.nack": lambda delivery: delivery.nack(),
    "Delivery.nack, later": lambda delivery: delivery.nack(delay=5),
    "Delivery.progress": lambda delivery: delivery.progress(1, 2),
    "Delivery.reject": lambda delivery: delivery.reject("why"),
    "Delivery.extend": lambda delivery: delivery.extend(60),
}
each_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


def test_each_verb_of_a_delivery_is_tried() -> None:
    assert differences(VERBS, calls(Delivery)) == not_called(VERBS) == []


@pytest.fixture
def delivery(queue: Queue) -> Delivery:
    """One message in flight for 30 s."""
    queue.write("payload", shard_key="t")
    return queue.read(visibility_timeout=30)


@pytest.mark.everywhere
def test_an_acked_message_is_gone_with_its_body(queue: Queue, delivery: Delivery, world: World) -> None:
    """Defect 3: an ack that leaves the entry makes length, shrinking and the shortest stream follow history."""
    delivery.ack()
    world.elapse(queue, 60)
    assert queue.read_many(9) == []
    assert (queue.len(), queue.stats().acked) == (0, 1)
    assert world.census(queue).bodies == set()


@pytest.mark.everywhere
def test_a_nacked_message_is_delivered_again_at_once_with_its_count(queue: Queue, delivery: Delivery) -> None:
    delivery.nack(error="it broke\nbadly")
    again = queue.read()
    assert (again.message_id, again.payload, again.count) == (delivery.message_id, "payload", 2)
    assert again.last_error == "it broke badly"


def test_an_error_text_is_kept_short(queue: Queue, delivery: Delivery) -> None:
    delivery.nack(error="x" * 10_000)
    assert queue.read().last_error == "x" * 500


def test_the_last_error_stays_until_there_is_a_newer_one(queue: Queue, delivery: Delivery) -> None:
    delivery.nack(error="first")
    queue.read().nack()
    again = queue.read()
    assert (again.last_error, again.count) == ("first", 3)
    again.nack(error="second")
    assert queue.read().last_error == "second"


def test_a_nack_says_whether_the_message_will_be_delivered_again(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=2, max_deliveries=2)
    queue.write("poison", shard_key="t")
    assert [queue.read().nack(), queue.read().nack()] == [True, False]
    assert queue.stats().dead == 1


@pytest.mark.everywhere
def test_a_message_nacked_with_a_delay_waits_for_it(queue: Queue, delivery: Delivery, world: World) -> None:
    delivery.nack(delay=60, error="later")
    assert queue.read_many(9) == []
    assert (queue.len(), queue.stats().delayed) == (0, 1)
    world.elapse(queue, 60)
    again = queue.read()
    assert (again.message_id, again.count, again.last_error) == (delivery.message_id, 2, "later")


@pytest.mark.everywhere
def test_a_rejected_message_is_a_dead_letter(queue: Queue, delivery: Delivery) -> None:
    delivery.reject("no such customer")
    assert queue.read_many(9) == []
    [letter] = queue.dead()
    assert (letter.message_id, letter.reason, letter.count) == (delivery.message_id, "no such customer", 1)


@pytest.mark.everywhere
def test_an_ended_lease_gives_the_message_to_the_next_reader(queue: Queue, delivery: Delivery, world: World) -> None:
    world.elapse(queue, 20)
    with pytest.raises(Empty):
        queue.read()
    world.elapse(queue, 10)
    again = queue.read()
    assert (again.message_id, again.count, again.last_error) == (delivery.message_id, 2, "lease ended")


def test_a_client_that_has_just_started_takes_back_ended_leases_too(
    queue: Queue, delivery: Delivery, open_queue: OpenQueue, world: World
) -> None:
    """A poll by a short-lived process, without blocking, must find what dead workers left behind."""
    world.elapse(queue, 30)
    assert open_queue(by=world.client()).read().message_id == delivery.message_id


@each_verb
def test_a_lease_that_ended_is_worth_nothing_though_nobody_took_the_message(
    verb: Settle, queue: Queue, delivery: Delivery, world: World
) -> None:
    world.elapse(queue, 30)
    before = queue.stats()
    with pytest.raises(LeaseLost):
        verb(delivery)
    assert queue.stats().backlog == before.backlog == 1
    assert queue.read().count == 2


@pytest.mark.everywhere
@each_verb
def test_a_stale_lease_changes_nothing_while_another_holds_the_message(
    verb: Settle, queue: Queue, delivery: Delivery, world: World
) -> None:
    world.elapse(queue, 30)
    holder = queue.read()
    before = world.census(queue)
    with pytest.raises(LeaseLost):
        verb(delivery)
    after = world.census(queue)
    assert (after.leased, after.returned, after.bodies) == (before.leased, before.returned, before.bodies)
    holder.ack()
    assert queue.len() == 0


@each_verb
def test_a_settled_delivery_cannot_be_settled_again(verb: Settle, queue: Queue, delivery: Delivery) -> None:
    delivery.nack()
    with pytest.raises(LeaseLost):
        verb(delivery)
    assert queue.read().count == 2


def test_a_lease_of_an_earlier_delivery_is_stale_even_for_the_same_reader(queue: Queue, delivery: Delivery) -> None:
    delivery.nack()
    again = queue.read()
    with pytest.raises(LeaseLost):
        delivery.ack()
    again.ack()


@pytest.mark.everywhere
def test_extending_moves_the_end_of_the_lease(queue: Queue, delivery: Delivery, world: World) -> None:
    delivery.extend(100)
    assert 80 < delivery.remaining <= 99
    world.elapse(queue, 80)
    assert queue.read_many(9) == []
    world.elapse(queue, 20)
    assert queue.read().message_id == delivery.message_id


def test_extending_may_shorten_the_lease(queue: Queue, delivery: Delivery, world: World) -> None:
    delivery.extend(2)
    world.elapse(queue, 2)
    assert queue.read().count == 2


def test_a_holder_that_extends_keeps_its_message_past_many_timeouts(
    queue: Queue, delivery: Delivery, world: World
) -> None:
    for _ in range(5):
        world.elapse(queue, 20)
        assert queue.read_many(9) == []
        delivery.extend(30)
    delivery.ack()


@pytest.mark.everywhere
def test_acking_many_tells_which_were_lost(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(10)])
    short, long = queue.read_many(4, visibility_timeout=5), queue.read_many(6, visibility_timeout=50)
    world.elapse(queue, 5)
    lost = queue.ack_many(short + long)
    assert {each.message_id for each in lost} == {each.message_id for each in short}
    assert queue.len() == 4
    assert queue.ack_many([]) == []


def test_acking_more_than_one_script_takes(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(1200)])
    found = queue.read_many(1000) + queue.read_many(1000)
    assert len(found) == 1200
    assert queue.ack_many(found) == []
    assert (queue.len(), world.census(queue).problems()) == (0, [])


def test_deliveries_may_be_settled_out_of_order(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(12)])
    found = queue.read_many(12)
    for each in reversed(found[::2]):
        each.ack()
    for each in found[1::2]:
        each.nack()
    assert world.census(queue).problems() == []
    assert sorted(each.payload for each in queue.read_many(20)) == sorted(each.payload for each in found[1::2])


def test_failing_messages_get_no_extra_turns(open_queue: OpenQueue) -> None:
    """What is given back waits for its turn as anything else does: a tenant that always fails crowds out nobody."""
    queue = open_queue(streams=4, streams_per_shard=4, max_deliveries=100, fair="messages")
    names = ["failing", "t", "u", "v"]
    for number in range(20):
        queue.write_many([(number, name) for name in names])
    served: Counter[object] = Counter()
    for _ in range(40):
        delivery = queue.read()
        served[delivery.shard_key] += 1
        if delivery.shard_key == "failing":
            delivery.nack()
        else:
            delivery.ack()
    assert served["failing"] <= 40 // len(names) + 1


@pytest.mark.parametrize("bad", [-1, "5", None, float("nan"), 10**12, True])
def test_a_bad_delay_is_refused_and_the_lease_stays(delivery: Delivery, bad: float) -> None:
    with pytest.raises(ConfigError, match="delay"):
        delivery.nack(delay=bad)
    delivery.ack()


@pytest.mark.parametrize("bad", [0, -1, "5", None, float("nan"), 10**12])
def test_a_bad_extension_is_refused_and_the_lease_stays(delivery: Delivery, bad: float) -> None:
    with pytest.raises(ConfigError, match="duration"):
        delivery.extend(bad)
    delivery.ack()


def test_neither_payload_nor_token_is_in_a_deliverys_text(delivery: Delivery) -> None:
    assert "payload" not in repr(delivery)
    assert delivery.received.token not in repr(delivery) + repr(delivery.received)
    assert "body" not in repr(delivery)


def test_nacking_many_gives_them_all_back_and_tells_which_were_lost(queue: Queue) -> None:
    queue.write_many([(number, "t") for number in range(5)])
    deliveries = queue.read_many(5)
    deliveries[0].ack()
    (lost,) = queue.nack_many(deliveries, error="shutting down")
    assert lost.message_id == deliveries[0].message_id
    again = queue.read_many(5)
    assert {(each.count, each.last_error) for each in again} == {(2, "shutting down")}
    assert len(again) == 4
    assert queue.nack_many([]) == []


@each_verb
def test_whoever_has_not_heard_that_shard_keys_have_parents_settles_as_well(
    verb: Settle, open_queue: OpenQueue, world: World
) -> None:
    old = open_queue()
    old.write("one", shard_key="acct/1")
    late = old.read(visibility_timeout=1)
    world.elapse(old, 1)
    queue = open_queue(by=world.client())
    queue.read().ack()
    queue.configure(parents=1)
    with pytest.raises(LeaseLost):
        verb(late)


def test_a_holder_elsewhere_that_has_not_heard_of_parents_ends_the_lease_on_the_right_account(
    open_queue: OpenQueue, world: World
) -> None:
    old = open_queue()
    old.declare()
    queue = open_queue(by=world.client())
    queue.configure(parents=1, max_in_flight=1)
    queue.write_many([(number, f"acct/{number}") for number in range(2)])
    first = queue.read()
    assert old._client.run(ack(old.state, [first.received])) == [Settled.OK]
    assert world.census(queue).problems() == []
    queue.read().ack()


def test_a_delivery_of_another_queue_is_not_taken_for_a_lost_one(client: Client, queue: Queue, queue_name: str) -> None:
    other = client.queue(f"{queue_name}-other", create=True)
    queue.write(1, shard_key="t")
    delivery = queue.read()
    assert delivery.queue.name == queue_name
    for settle in (other.ack_many, other.nack_many):
        with pytest.raises(ConfigError, match=f"is of queue '{queue_name}'"):
            settle([delivery])
    assert queue.ack_many([delivery]) == []


def test_many_are_given_back_or_rejected_in_one_call_each_on_its_own_terms(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(4)])
    one, two, three, four = queue.read_many(4)
    assert queue.nack_many([one, two], delay=[0.0, 50.0], error=["once", "twice"]) == []
    assert queue.reject_many([three, four], ["bad", "worse"]) == []
    again = queue.read_many(4)
    assert [(each.message_id, each.last_error) for each in again] == [(one.message_id, "once")]
    queue.ack_many(again)
    world.elapse(queue, 50)
    assert [(each.message_id, each.last_error) for each in queue.read_many(4)] == [(two.message_id, "twice")]
    assert {letter.message_id: letter.reason for letter in queue.dead()} == {
        three.message_id: "bad",
        four.message_id: "worse",
    }
    assert [each.message_id for each in queue.reject_many([four], "late")] == [four.message_id]


def test_terms_must_be_as_many_as_the_deliveries(queue: Queue, delivery: Delivery) -> None:
    every: list[dict[str, Any]] = [{"delay": [1.0, 2.0]}, {"error": []}, {"delay": [-1.0]}]
    for terms in every:
        with pytest.raises(ConfigError):
            queue.nack_many([delivery], **terms)
    with pytest.raises(ConfigError, match="one for each of the 1"):
        queue.reject_many([delivery], ["a", "b"])
    delivery.ack()
