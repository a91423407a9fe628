"""Figures by which others scale are right at once, and after time has passed in which nobody read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Delivery, Limits, Message, Queue
from tests.promises.conftest import OpenQueue
from tests.waiting import eventually

LASTS = 3.0
"""Seconds: longer than a machine may stand still."""
WHILE = 30.0


def rate(queue: Queue) -> object:
    queue.set_limits({"t": Limits(rate=1 / LASTS, burst=1)})
    queue.write_many([(number, "t") for number in range(3)])
    return queue.read()


def queue_rate(queue: Queue) -> object:
    """A rate of every tenant."""
    queue.configure(rate=1 / LASTS, burst=1)
    queue.write_many([(number, "t") for number in range(3)])
    return queue.read()


def total_rate(queue: Queue) -> object:
    queue.configure(total_rate=1 / LASTS, total_burst=1)
    queue.write_many([(number, "t") for number in range(3)])
    return queue.read()


def pause(queue: Queue) -> object:
    queue.write_many([(number, "t") for number in range(3)])
    queue.pause("t", seconds=LASTS)
    return None


def pause_of_the_queue(queue: Queue) -> object:
    queue.write_many([(number, "t") for number in range(3)])
    queue.pause(seconds=LASTS)
    return None


def delay(queue: Queue) -> object:
    return queue.write_many([Message(number, "t", delay=LASTS) for number in range(3)])


def lease(queue: Queue) -> object:
    queue.write("work", shard_key="t")
    return queue.read(visibility_timeout=LASTS)


def lease_below_a_cap(queue: Queue) -> object:
    queue.configure(max_in_flight=1)
    queue.write_many([(number, "t") for number in range(3)])
    return queue.read(visibility_timeout=LASTS)


def lease_below_the_cap_of_the_queue(queue: Queue) -> object:
    queue.configure(total_in_flight=1)
    queue.write_many([(number, "t") for number in range(3)])
    return queue.read(visibility_timeout=LASTS)


def delayed_nack(queue: Queue) -> object:
    queue.write("work", shard_key="t")
    found: Delivery = queue.read()
    found.nack(delay=LASTS)
    return None


LIMIT: dict[str, Callable[[Queue], object]] = {
    each.__name__: each
    for each in (
        rate, queue_rate, total_rate, pause, pause_of_the_queue, delay, lease, lease_below_a_cap,
        lease_below_the_cap_of_the_queue, delayed_nack,
    )
}  # fmt: skip


def runnable(queue: Queue) -> int:
    return queue.stats().runnable


@pytest.mark.parametrize("limit", LIMIT)
@pytest.mark.parametrize("looks", [False, True], ids=["nobody looks", "a reader looks once"])
@pytest.mark.runs_in("test-all")
def test_runnable_is_above_0_exactly_if_a_read_would_get_something(
    open_queue: OpenQueue, limit: str, looks: bool
) -> None:
    """Nothing may be delivered; then, after time alone, something may be, and nobody has read."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, visibility_timeout=600)
    LIMIT[limit](queue)
    if looks:
        assert queue.read_many(9) == []
    assert runnable(queue) == 0
    now = queue.stats().time
    eventually(lambda: queue.stats().time > now + LASTS, WHILE, what="so much time")
    told = runnable(queue)
    found = queue.read_many(9)
    assert found
    assert 0 < told <= 3


@pytest.mark.parametrize("limit", ["pause", "rate"])
def test_who_has_scaled_to_zero_learns_that_a_limit_is_over(open_queue: OpenQueue, limit: str) -> None:
    """The short form: the last reader saw that nothing may be delivered, and left."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    for number in range(100):
        queue.write(number, shard_key="t")
        if limit == "pause":
            queue.pause("t", seconds=0.3)
        else:
            queue.set_limits({"t": Limits(rate=3, burst=1)})
            queue.write(number, shard_key="t")
            queue.read().ack()
        if not (found := queue.read_many(9)):
            break  # else this machine stood still, and the limit was over before
        assert queue.ack_many(found) == []
    now = queue.stats().time
    eventually(lambda: queue.stats().time > now + 0.4, what="so much time")
    assert runnable(queue) == 1


@pytest.mark.parametrize("limit", ["a pause", "a cap", "a rate", "the queue's pause", "the queue's cap"])
def test_runnable_is_0_as_soon_as_a_limit_blocks_all(open_queue: OpenQueue, limit: str) -> None:
    """At once, and with nobody reading after it was set."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.write_many([(number, "t") for number in range(5)])
    queue.read()
    match limit:
        case "a pause":
            queue.pause("t")
        case "a cap":
            queue.set_limits({"t": Limits(max_in_flight=1)})
        case "a rate":
            queue.set_limits({"t": Limits(rate=0.001, burst=1)})
            queue.read()
        case "the queue's pause":
            queue.pause()
        case _:
            queue.configure(total_in_flight=1)
    assert runnable(queue) == 0
    assert queue.read_many(9) == []


def test_runnable_is_what_a_read_of_many_gets(open_queue: OpenQueue) -> None:
    """With each kind of limit for one tenant, and some without."""
    queue = open_queue(streams=16, streams_per_shard=2, window=1)
    queue.set_limits({"capped": Limits(max_in_flight=2), "rated": Limits(rate=0.001, burst=3)})
    queue.pause("paused")
    queue.write_many([(n, tenant) for n in range(5) for tenant in ("capped", "rated", "paused", "a", "b")])
    told = runnable(queue)
    found = queue.read_many(100)
    assert len(found) == 2 + 3 + 5 + 5
    assert told == len(found)
    assert runnable(queue) == 0
