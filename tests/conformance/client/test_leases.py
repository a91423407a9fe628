"""A lease ends for its holder, too: a delivery turns lost at its time, by the local clock, and calls back once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shardq import Delivery, LeaseLost, MessageCancelled, Queue
from shardq.clock import SystemClock
from shardq.testing import ManualClock
from shardq.timing import timer
from tests.conformance.world import World
from tests.waiting import eventually

Seen = list[Delivery]
LEASE = 300.0


class Forward(SystemClock):
    """The machine's clock, put forward: a machine that was suspended."""

    by = 0.0

    def monotonic(self) -> float:
        """Seconds since boot, and those that the machine was suspended."""
        return super().monotonic() + self.by


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is put forward is noticed at once, not after a second."""
    monkeypatch.setattr(timer, "MAX_WAIT", 0.02)


@pytest.fixture
def clock() -> Forward:
    return Forward()


@pytest.fixture
def jobs(world: World, clock: Forward, queue_name: str) -> Queue:
    """A queue with three messages, of a client whose clock can be put forward."""
    jobs = world.client(clock=clock).queue(queue_name, streams=4)
    jobs.write_many([(number, "t") for number in range(3)])
    return jobs


def pending(jobs: Queue) -> int:
    """How many leases are in the wheel. (Blocked reads may be there, too, but there are none here.)"""
    return len(jobs.client.timer)


def watched(delivery: Delivery) -> Seen:
    """What calls back, from now on."""
    seen: Seen = []
    delivery.on_lost(seen.append)
    return seen


def test_a_delivery_turns_lost_at_its_time_without_asking(jobs: Queue, world: World) -> None:
    """Nothing is sent. The server's deadline is a little later, so it can still take the ack that comes at once."""
    delivery = jobs.read(visibility_timeout=0.05)
    seen = watched(delivery)
    eventually(lambda: seen)
    assert (delivery.lost, len(seen), seen[0].message_id) == (True, 1, delivery.message_id)
    assert delivery.remaining <= 0
    world.elapse(jobs, 60)
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert len(seen) == 1


def test_after_a_suspend_all_leases_are_lost_at_once(jobs: Queue, clock: Forward) -> None:
    deliveries = jobs.read_many(3, visibility_timeout=LEASE)
    seen = [watched(delivery) for delivery in deliveries]
    assert pending(jobs) == 3
    clock.by += LEASE
    assert [delivery.lost for delivery in deliveries] == [True] * 3
    eventually(lambda: all(seen))
    assert (list(map(len, seen)), pending(jobs)) == ([1, 1, 1], 0)


def test_extend_moves_the_end(jobs: Queue, clock: Forward) -> None:
    delivery, other = jobs.read_many(2, visibility_timeout=LEASE)
    seen, others = watched(delivery), watched(other)
    delivery.extend(3 * LEASE)
    clock.by += LEASE
    eventually(lambda: others)
    assert (delivery.lost, other.lost, seen) == (False, True, [])
    delivery.extend(0.05)
    eventually(lambda: seen)
    assert delivery.lost


@pytest.mark.once
@pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
@pytest.mark.parametrize("many", [False, True])
def test_what_is_settled_is_not_lost_and_leaves_the_wheel(jobs: Queue, clock: Forward, verb: str, many: bool) -> None:
    delivery = jobs.read(visibility_timeout=LEASE)
    seen = watched(delivery)
    ways: dict[str, Callable[[], object]] = {
        "ack": lambda: jobs.ack_many([delivery]) if many else delivery.ack(),
        "nack": lambda: jobs.nack_many([delivery]) if many else delivery.nack(delay=60),
        "reject": lambda: jobs.reject_many([delivery], "why") if many else delivery.reject("why"),
    }
    ways[verb]()
    assert pending(jobs) == 0
    clock.by += 2 * LEASE
    with pytest.raises(LeaseLost):
        delivery.extend(60)
    late = watched(jobs.read(visibility_timeout=0.05))
    eventually(lambda: late, what="the timer has run since")
    assert (delivery.lost, seen) == (False, [])


@pytest.mark.parametrize("many", [False, True])
def test_redis_may_say_so_earlier(jobs: Queue, many: bool) -> None:
    """The message was cancelled: the next call of its holder learns it."""
    delivery = jobs.read(visibility_timeout=LEASE)
    seen = watched(delivery)
    assert jobs.cancel(delivery.message_id) == "in flight"
    if many:
        assert [each.message_id for each in jobs.ack_many([delivery])] == [delivery.message_id]
    else:
        with pytest.raises(MessageCancelled):
            delivery.extend(60)
    eventually(lambda: seen)
    assert (delivery.lost, len(seen), pending(jobs)) == (True, 1, 0)
    later = watched(delivery)
    eventually(lambda: later, what="who asks later is told at once")


def test_callbacks_are_called_in_their_order_and_an_error_stops_none(jobs: Queue, clock: Forward) -> None:
    delivery = jobs.read(visibility_timeout=LEASE)
    seen: list[int] = []
    done = threading.Event()
    delivery.on_lost(lambda _: seen.append(1))
    delivery.on_lost(lambda _: 1 / 0)
    delivery.on_lost(lambda _: seen.append(2))
    delivery.on_lost(lambda _: done.set())
    clock.by += LEASE
    assert done.wait(30)
    assert seen == [1, 2]


def test_a_closed_client_calls_nothing_back(world: World, queue_name: str, real: None) -> None:
    clock = ManualClock()
    client = world.client(clock=clock)
    jobs = client.queue(queue_name, streams=4)
    jobs.write("a", shard_key="t")
    delivery = jobs.read(visibility_timeout=LEASE)
    seen = watched(delivery)
    client.close()
    clock.advance(LEASE)
    assert (delivery.lost, len(client.timer), seen) == (True, 0, [])
