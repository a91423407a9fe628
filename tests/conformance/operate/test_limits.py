"""Live limits: caps and rates of shard keys and of the whole queue, pauses. What they hold back is in nobody's way."""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import Any

import pytest

from shardq import Client, ConfigError, Delivery, Empty, Limits, Queue, QueueMissing
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_blocking import blocked
from tests.conformance.read.test_fairness import flood, sound
from tests.conformance.world import World, drained
from tests.waiting import eventually

FOR_EVER = 86_400.0
A_MS = 0.001
"""As exactly as the server tells its time."""


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a window."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.declare()
    return queue


def counted(found: list[Delivery]) -> Counter[Any]:
    """How many of each shard key."""
    return Counter(each.shard_key for each in found)


def numbers(found: list[Delivery]) -> list[int]:
    """Those that `flood` has given the messages."""
    return [each.payload[1] for each in found]


# --- pauses


@pytest.mark.everywhere
def test_a_paused_shard_key_is_passed_over_and_comes_back(queue: Queue, world: World) -> None:
    flood(queue, "loud", 20)
    queue.write("hello", shard_key="quiet")
    queue.pause("loud")
    assert queue.paused() == {"loud": math.inf}
    assert [each.shard_key for each in queue.read_many(100)] == ["quiet"]
    assert queue.read_many(100) == []
    flood(queue, "loud", 5)
    stats = queue.stats()
    assert (stats.backlog, stats.held_back, stats.limited, stats.runnable) == (25, 25, 25, 0)
    assert sound(queue, world)
    queue.resume("loud")
    assert queue.paused() == {}
    assert sorted(numbers(drained(queue))) == sorted([*range(20), *range(5)])
    assert sound(queue, world)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_what_lay_in_the_streams_is_held_in_the_order_of_writing(
    open_queue: OpenQueue, world: World, batch: int
) -> None:
    """Before the window was switched on, all of it lay there; so did what was given back."""
    queue = open_queue(streams=2, streams_per_shard=1, window=50)
    flood(queue, "loud", 40)
    flood(queue, "other", 3)
    given_back = queue.read_many(4)
    assert queue.nack_many([each for each in given_back if each.shard_key == "loud"]) == []
    queue.pause("loud")
    queue.ack_many([each for each in given_back if each.shard_key == "other"])
    while found := queue.read_many(batch):
        assert counted(found).keys() == {"other"}
        queue.ack_many(found)
    assert (queue.stats().held_back, queue.stats().limited) == (40, 40)
    assert sound(queue, world)
    queue.resume("loud")
    came = numbers(drained(queue))
    assert sorted(came) == [*range(40)]
    again = numbers(given_back)
    first = [number for number in came if number not in again]
    assert first == sorted(first)


def test_what_is_in_flight_ends_normally_and_what_is_given_back_waits(queue: Queue, world: World) -> None:
    flood(queue, "loud", 4)
    one, other, third = queue.read_many(3)
    queue.pause("loud")
    one.ack()
    other.nack()
    third.extend(60)
    assert queue.read_many(9) == []
    third.nack(delay=0.05)
    eventually(lambda: queue.stats().delayed == 0, what="the end of a delay")
    assert queue.read_many(9) == []
    assert sound(queue, world)
    queue.resume("loud")
    assert sorted((each.payload[1], each.count) for each in drained(queue)) == [(1, 2), (2, 2), (3, 1)]


def test_a_pause_of_a_parent_is_one_of_its_children(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    for key in ("acct-7/a", "acct-7/b", "acct-8/a"):
        flood(queue, key, 10)
    queue.pause("acct-7")
    assert counted(queue.read_many(100)) == {"acct-8/a": 10}
    with pytest.raises(ConfigError, match="'/'"):
        queue.pause("acct-7/a")
    assert sound(queue, world)
    queue.resume("acct-7")
    assert counted(drained(queue)) == {"acct-7/a": 10, "acct-7/b": 10}


def test_a_paused_queue_takes_writes_and_gives_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=0)
    queue.write(1, shard_key="t")
    held = queue.read()
    queue.pause()
    assert queue.paused() == {None: math.inf}
    queue.write(2, shard_key="t")
    with pytest.raises(Empty):
        queue.read()
    assert (queue.len(), queue.stats().runnable) == (2, 0)
    held.ack()
    queue.resume()
    assert queue.read().payload == 2
    assert queue.paused() == {}


@pytest.mark.parametrize("shard_key", [None, "t"])
def test_a_pause_ends_by_itself_and_a_blocked_reader_goes_on(queue: Queue, shard_key: str | None, real: None) -> None:
    queue.write(1, shard_key="t")
    queue.pause(shard_key, seconds=0.3)
    (end,) = queue.paused().values()
    delivery = queue.read(block=60)
    assert delivery.payload == 1
    assert queue.stats().time >= end
    assert queue.paused() == {}


@pytest.mark.parametrize("shard_key", [None, "t"])
def test_a_blocked_reader_is_woken_when_it_goes_on(
    queue: Queue, patient: Client, world: World, shard_key: str | None, real: None
) -> None:
    waiting = patient.queue(queue.name)
    queue.write(1, shard_key="t")
    queue.pause(shard_key)
    found: list[Delivery] = []
    reader = threading.Thread(target=lambda: found.append(waiting.read(block=60)))
    reader.start()
    blocked(world, queue, 1)
    queue.resume(shard_key)
    reader.join(30)
    assert [each.payload for each in found] == [1]


# --- caps


@pytest.mark.everywhere
def test_a_cap_of_one_shard_key(queue: Queue, world: World) -> None:
    flood(queue, "capped", 10)
    flood(queue, "free", 10)
    queue.set_limits({"capped": Limits(max_in_flight=3)})
    assert queue.limits() == {"capped": Limits(max_in_flight=3)}
    held = queue.read_many(100)
    assert counted(held) == {"capped": 3, "free": 10}
    assert (queue.stats().limited, queue.stats().runnable) == (7, 0)
    assert queue.read_many(100) == []
    next(each for each in held if each.shard_key == "capped").ack()
    assert counted(queue.read_many(100)) == {"capped": 1}
    assert sound(queue, world)


def test_what_is_in_flight_when_a_cap_comes_counts(queue: Queue, world: World) -> None:
    flood(queue, "t", 20)
    held = queue.read_many(5)
    queue.set_limits({"t": Limits(max_in_flight=3)})
    assert queue.read_many(100) == []
    queue.ack_many(held[:2])
    assert queue.read_many(100) == []
    queue.ack_many(held[2:4])
    assert len(queue.read_many(100)) == 2
    assert sound(queue, world)


def test_a_cap_that_is_raised_or_taken_away_lets_messages_in_at_once(queue: Queue, world: World) -> None:
    flood(queue, "t", 30)
    queue.set_limits({"t": Limits(max_in_flight=2)})
    assert len(queue.read_many(100)) == 2
    queue.set_limits({"t": Limits(max_in_flight=5)})
    assert len(queue.read_many(100)) == 3
    queue.set_limits({"t": Limits()})
    assert queue.limits() == {}
    assert len(queue.read_many(100)) == 25
    assert sound(queue, world)


def test_an_own_cap_counts_instead_of_the_queue_s(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2)
    queue.declare()
    queue.set_limits({"more": Limits(max_in_flight=4), "all": Limits(max_in_flight=0)})
    for key in ("usual", "more", "all"):
        flood(queue, key, 10)
    assert counted(queue.read_many(100)) == {"usual": 2, "more": 4, "all": 10}
    assert sound(queue, world)


def test_a_cap_of_the_whole_queue(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, total_in_flight=5)
    for n in range(10):
        flood(queue, f"t{n}", 2)
    held = queue.read_many(100)
    assert len(held) == 5
    assert queue.read_many(100) == []
    assert (queue.stats().runnable, queue.stats().backlog) == (0, 15)
    queue.ack_many(held[:2])
    assert queue.stats().runnable == 2
    assert len(queue.read_many(100)) == 2
    queue.configure(total_in_flight=0)
    assert len(queue.read_many(100)) == 13
    assert sound(queue, world)


def test_an_ack_wakes_who_is_blocked_by_the_cap_of_the_queue(open_queue: OpenQueue, world: World, real: None) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, total_in_flight=1)
    queue.write_many([(n, "t") for n in range(2)])
    held = queue.read()
    found: list[Delivery] = []
    reader = threading.Thread(target=lambda: found.append(queue.read(block=60)))
    reader.start()
    blocked(world, queue, 1)
    held.ack()
    reader.join(30)
    assert sorted([held.payload, *(each.payload for each in found)]) == [0, 1]


# --- rates


@pytest.mark.everywhere
def test_a_rate_lets_a_burst_pass_and_then_one_at_a_time(queue: Queue, world: World) -> None:
    """With a token in a thousand seconds, time plays no part."""
    queue.set_limits({"t": Limits(rate=0.001, burst=4)})
    flood(queue, "t", 10)
    flood(queue, "free", 10)
    assert counted(queue.read_many(100)) == {"t": 4, "free": 10}
    stats = queue.stats()
    assert (stats.limited, stats.runnable) == (6, 0)
    queue.set_limits({"t": Limits()})
    assert len(drained(queue)) == 6
    assert sound(queue, world)


def test_a_blocked_reader_gets_a_message_when_its_token_is_there(open_queue: OpenQueue, real: None) -> None:
    queue = open_queue(journal=100)
    queue.declare()
    queue.set_limits({"t": Limits(rate=20, burst=1)})
    flood(queue, "t", 11)
    for _ in range(11):
        queue.read(block=60).ack()
    times = [event.time for event in queue.journal(100).events if event.kind == "delivered"]
    assert times[-1] - times[0] >= 9 / 20 - A_MS, "faster than the rate, but for one token that was fetched late"


def test_a_rate_of_every_shard_key(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, rate=0.001, burst=2)
    queue.declare()
    queue.set_limits({"more": Limits(rate=0.001, burst=5), "free": Limits(rate=0)})
    for key in ("a", "b", "more", "free"):
        flood(queue, key, 10)
    assert counted(queue.read_many(100)) == {"a": 2, "b": 2, "more": 5, "free": 10}
    queue.configure(rate=0)
    assert counted(drained(queue)) == {"a": 8, "b": 8}
    queue.set_limits({"more": Limits()})
    assert counted(drained(queue)) == {"more": 5}
    assert sound(queue, world)


def test_a_rate_of_the_whole_queue(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, total_rate=0.001, total_burst=7)
    for n in range(10):
        flood(queue, f"t{n}", 2)
    assert len(queue.read_many(5)) == 5
    assert queue.stats().runnable == 2
    assert len(queue.read_many(5)) == 2
    assert queue.read_many(5) == []
    queue.configure(total_rate=0)
    assert len(queue.read_many(100)) == 13


def test_a_bucket_that_is_full_again_leaves_nothing_behind(queue: Queue, world: World, real: None) -> None:
    queue.set_limits({"t": Limits(rate=100, burst=2)})
    flood(queue, "t", 2)
    queue.ack_many(queue.read_many(2))
    keys = queue.state.keys

    def is_empty() -> bool:
        queue.read_many(1)
        words = world.raw.hget(keys.meta, "t:t").split()
        return bool(words[6] == b"0" and world.raw.zscore(keys.due, "t") is None)

    eventually(is_empty, what="an empty bucket")


# --- who may have limits


def test_bad_limits_are_refused(queue: Queue) -> None:
    for bad in (
        {"max_in_flight": -1},
        {"max_in_flight": 1.5},
        {"rate": -1},
        {"rate": math.nan},
        {"rate": 1e9},
        {"burst": -1},
    ):
        with pytest.raises(ConfigError, match="must be a"):
            Limits(**bad)
    with pytest.raises(ConfigError, match="Limits"):
        queue.set_limits({"t": 3})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="shard key"):
        queue.pause("")
    with pytest.raises(ConfigError, match="pause"):
        queue.pause("t", seconds=0)
    assert (queue.limits(), queue.paused()) == ({}, {})


def test_a_queue_without_a_window_does_not_know_its_shard_keys(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=0)
    queue.declare()
    with pytest.raises(ConfigError, match=r"configure\(window=1\)"):
        queue.set_limits({"t": Limits(max_in_flight=1)})


def test_a_queue_that_does_not_exist_has_no_limits(world: World) -> None:
    queue = world.client().queue("nowhere")
    for call in (queue.limits, queue.paused, queue.pause, queue.resume, lambda: queue.set_limits({"t": Limits()})):
        with pytest.raises(QueueMissing):
            call()


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_any_number_of_shard_keys_may_have_limits(queue: Queue) -> None:
    names = [f"t{number}" for number in range(10_000)]
    queue.set_limits(dict.fromkeys(names, Limits(max_in_flight=1)))
    queue.set_limits({"one more": Limits(max_in_flight=1)})
    queue.pause("t7")
    assert len(queue.limits()) == 10_001
    queue.set_limits(dict.fromkeys(names, Limits()))
    queue.set_limits({"one more": Limits()})
    assert (queue.limits(), queue.paused()) == ({}, {"t7": math.inf})


def test_limits_and_a_pause_of_one_shard_key_are_apart(queue: Queue) -> None:
    queue.pause("t", seconds=FOR_EVER)
    queue.set_limits({"t": Limits(rate=2.5)})
    assert queue.limits() == {"t": Limits(rate=2.5)}
    assert [*queue.paused()] == ["t"]
    queue.resume("t")
    assert (queue.limits(), queue.paused()) == ({"t": Limits(rate=2.5)}, {})
    raw = b"\xff/\x00"
    queue.set_limits({raw: Limits(max_in_flight=2)})
    assert queue.limits() == {"t": Limits(rate=2.5), raw: Limits(max_in_flight=2)}


def test_the_status_of_a_message_says_what_holds_it_back(queue: Queue) -> None:
    queue.write_many([(n, f"other-{n}") for n in range(8)])
    ids = {name: queue.write_many([(n, name) for n in range(3)]) for name in ("capped", "rated", "paused", "free")}
    queue.set_limits({"capped": Limits(max_in_flight=1), "rated": Limits(rate=0.001, burst=1)})
    queue.pause("paused")
    reasons = {name: queue.status(of_name[2]).reason for name, of_name in ids.items()}
    assert reasons == {"capped": "max_in_flight", "rated": "rate", "paused": "paused", "free": "window"}
    queue.pause()
    assert {queue.status(each).reason for of_name in ids.values() for each in of_name} == {"paused"}
    queue.resume()
    queue.resume("paused")
    assert queue.status(ids["paused"][2]).reason == "window"


def test_one_read_finds_what_a_rate_held_back_that_is_gone(open_queue: OpenQueue, world: World) -> None:
    """Though it also finds that it was time to look at the bucket again, of which nothing is left."""
    queue = open_queue(streams=4)
    queue.write_many([(number, "t") for number in range(40)])
    queue.configure(rate=0.001, burst=4)
    assert queue.nack_many(queue.read_many(32)) == []
    queue.configure(rate=0, burst=0)
    world.elapse(queue, 100_000)
    first = queue.read_many(200)
    assert first
    assert queue.ack_many(first) == []
    while found := drained(queue):
        assert queue.ack_many(found) == []
    assert queue.stats().backlog == 0


def test_a_write_does_not_put_off_the_next_token(queue: Queue, real: None) -> None:
    """It counts the token that is there by now, and leaves it to the next read to use it."""
    queue.declare()
    queue.set_limits({"t": Limits(rate=10, burst=4)})
    queue.write_many([(number, "t") for number in range(8)])
    assert queue.ack_many(found := queue.read_many(8)) == []
    assert len(found) == 4
    began = queue.stats().time
    eventually(lambda: queue.stats().time > began + 0.12)
    queue.write_many([("late", "t"), ("other", "u")])
    assert {4, "other"} <= {each.payload for each in queue.read_many(8)}  # and more, if more time has passed
