"""A large payload that is held back lies by itself: it is told wherever its message is, and goes with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Queue
from shardq.model import PeekState
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

LARGE = b"\x00p=|@:" * 1000
SMALL = b"small"
LATER = 30.0


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue that gives up after three deliveries, and has a journal."""
    return open_queue(streams=4, streams_per_shard=4, max_deliveries=3, journal=1000)


def behind(queue: Queue, payload: bytes) -> str:
    """It waits behind another message of its shard key, which is done by now."""
    queue.write(SMALL, shard_key="t")
    message_id = queue.write(payload, shard_key="t", headers={"n": "1"})
    queue.read().ack()
    return message_id


def delayed(queue: Queue, payload: bytes) -> str:
    return queue.write(payload, shard_key="t", headers={"n": "1"}, delay=LATER)


def unique(queue: Queue, payload: bytes) -> str:
    return queue.write(payload, shard_key="t", headers={"n": "1"}, unique_key="k")


def unique_and_delayed(queue: Queue, payload: bytes) -> str:
    return queue.write(payload, shard_key="t", headers={"n": "1"}, unique_key="k", delay=LATER)


def returned(queue: Queue, payload: bytes) -> str:
    """It was delivered out of a stream, and comes again."""
    message_id = queue.write(payload, shard_key="t", headers={"n": "1"})
    queue.read().nack()
    return message_id


def put_off(queue: Queue, payload: bytes) -> str:
    """It was delivered out of a stream, and comes again later."""
    message_id = queue.write(payload, shard_key="t", headers={"n": "1"})
    queue.read().nack(delay=LATER)
    return message_id


def redriven(queue: Queue, payload: bytes) -> str:
    message_id = queue.write(payload, shard_key="t", headers={"n": "1"})
    queue.read().reject("no")
    assert queue.redrive([*queue.dead()]) == 1
    return message_id


WAYS = (behind, delayed, unique, unique_and_delayed, returned, put_off, redriven)
UNIQUE = (unique, unique_and_delayed)


def acked(queue: Queue, world: World, message_id: str) -> None:
    world.elapse(queue, LATER)
    queue.read().ack()


def acked_at_last(queue: Queue, world: World, message_id: str) -> None:
    """A lease ended, and a nack gave it back."""
    world.elapse(queue, LATER)
    queue.read()
    world.elapse(queue, 60)
    queue.read().ack()


def rejected(queue: Queue, world: World, message_id: str) -> None:
    world.elapse(queue, LATER)
    queue.read().reject("no")
    assert [letter.body for letter in queue.dead()] == [LARGE]


def given_up(queue: Queue, world: World, message_id: str) -> None:
    """It had its last delivery."""
    world.elapse(queue, LATER)
    while not queue.dead():
        for delivery in queue.read_many(1):
            assert delivery.body == LARGE
            world.elapse(queue, 60)
    assert [letter.body for letter in queue.dead()] == [LARGE]


def cancelled(queue: Queue, world: World, message_id: str) -> None:
    assert queue.cancel(message_id) == "removed"


def cancelled_in_flight(queue: Queue, world: World, message_id: str) -> None:
    world.elapse(queue, LATER)
    delivery = queue.read()
    assert queue.cancel(message_id) == "in flight"
    queue.ack_many([delivery])


def cancelled_and_lost(queue: Queue, world: World, message_id: str) -> None:
    """Its holder never came back."""
    world.elapse(queue, LATER)
    queue.read()
    assert queue.cancel(message_id) == "in flight"
    world.elapse(queue, 60)
    assert queue.read_many(9) == []


def purged(queue: Queue, world: World, message_id: str) -> None:
    assert queue.purge() == 1


def replaced(queue: Queue, world: World, message_id: str) -> None:
    """What has its unique key now is small."""
    again = queue.write(SMALL, shard_key="t", unique_key="k", on_conflict="replace")
    assert again == message_id
    assert not payloads_apart(queue, world)
    acked(queue, world, message_id)


def replaced_by_large(queue: Queue, world: World, message_id: str) -> None:
    queue.write(LARGE * 2, shard_key="t", unique_key="k", on_conflict="replace")
    world.elapse(queue, LATER)
    delivery = queue.read()
    assert delivery.body == LARGE * 2
    delivery.ack()


def deleted(queue: Queue, world: World, message_id: str) -> None:
    assert queue.delete(expected=1) == 1


ENDS = (acked, acked_at_last, rejected, given_up, cancelled, cancelled_in_flight, cancelled_and_lost, purged, deleted)
CASES = [(way, end) for way in WAYS for end in (*ENDS, *((replaced, replaced_by_large) if way in UNIQUE else ()))]


def payloads_apart(queue: Queue, world: World) -> list[bytes]:
    """The payloads that lie by themselves."""
    bodies = world.raw.hgetall(queue.state.keys.bodies)
    return [payload for field, payload in bodies.items() if field.startswith(b"p")]


@pytest.mark.once
@pytest.mark.parametrize(("way", "end"), CASES, ids=lambda each: each.__name__)
def test_whatever_ends_a_message_nothing_of_it_is_left(
    queue: Queue, world: World, way: Callable[[Queue, bytes], str], end: Callable[[Queue, World, str], None]
) -> None:
    message_id = way(queue, LARGE)
    assert payloads_apart(queue, world) == [LARGE]
    end(queue, world, message_id)
    assert set(world.raw.hkeys(queue.state.keys.bodies)) <= {b""}, "nothing is left but the sentinel"
    if end is not deleted:
        assert world.census(queue).problems() == []


@pytest.mark.once
def test_what_is_past_its_deadline_leaves_no_payload(queue: Queue, world: World) -> None:
    queue.write(SMALL, shard_key="t")
    late = queue.write(LARGE, shard_key="t", deadline=0.001)
    while world.census(queue).now <= int(late.partition("-")[0]) + 1:
        pass
    queue.read().ack()
    assert queue.read_many(9) == []
    assert queue.stats().expired == 1
    assert world.raw.hkeys(queue.state.keys.bodies) == [b""]


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_large_payload_is_told_wherever_its_message_is(
    queue: Queue, world: World, way: Callable[[Queue, bytes], str]
) -> None:
    message_id = way(queue, LARGE)
    state: PeekState = "delayed" if way in (delayed, unique_and_delayed, put_off) else "waiting"

    def told(state: PeekState) -> None:
        [bare] = queue.peek(state=state).messages
        [whole] = queue.peek(state=state, payloads=True).messages
        assert (whole.message_id, whole.body, dict(whole.headers)) == (message_id, LARGE, {"n": "1"})
        assert bare.size == len(LARGE)

    told(state)
    assert queue.status(message_id).state == state
    world.elapse(queue, LATER)
    delivery = queue.read()
    assert (delivery.message_id, delivery.body, dict(delivery.headers)) == (message_id, LARGE, {"n": "1"})
    told("in_flight")
    delivery.nack()
    assert queue.read().body == LARGE
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_a_payload_that_is_gone_counts_as_vanished(queue: Queue, world: World) -> None:
    """Somebody deleted it by hand: nobody gets another payload in its place, and what comes behind is delivered."""
    behind(queue, LARGE)
    queue.write(SMALL, shard_key="t")
    [field] = [field for field in world.raw.hkeys(queue.state.keys.bodies) if field.startswith(b"p")]
    world.raw.hdel(queue.state.keys.bodies, field)
    assert [each.body for each in queue.read_many(9)] == [SMALL]
    assert queue.stats().vanished == 1
    assert world.census(queue).problems() == []
