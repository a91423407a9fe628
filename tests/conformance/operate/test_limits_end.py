"""Limits and weights that end by themselves: what waited for them comes, and what is over is told no more."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shardq import ConfigError, Delivery, Limits, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("real")

A_MS = 0.001
"""As exactly as the server tells its time."""

IN_TIME = 0.25
"""Seconds after its end in which a blocked reader has what waited for it."""


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a window and a plan."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1, journal=1000)
    queue.declare()
    queue.set_plan("slow", rate=0.001, burst=1)
    return queue


def over(queue: Queue, what: Callable[[], Any]) -> None:
    """Wait for the end, by what a look tells, and let a read write down that it has come."""
    eventually(lambda: not what(), what="the end")
    queue.read_many(1)


@pytest.mark.parametrize("limits", [Limits(rate=0.001, burst=1), Limits(max_in_flight=1), "slow"], ids=str)
def test_a_blocked_reader_has_what_waited_as_soon_as_limits_end(queue: Queue, limits: Limits | str) -> None:
    late = []
    for tried in range(5):  # the machine may stand still
        name = f"t{tried}"
        queue.set_limits({name: limits}, seconds=0.3)
        end = queue.controls().limits[name].until
        queue.write_many([(number, name) for number in range(2)])
        first, second = queue.read(block=60), queue.read(block=60)
        event = next(each for each in queue.journal().events if each.message_id == second.message_id and each.count)
        assert event.time >= end - A_MS
        late.append(event.time - end)
        queue.ack_many([first, second])
    assert min(late) < IN_TIME
    assert queue.limits() == {}
    assert queue.plans()["slow"].tenants == 0


def test_a_reader_that_was_blocked_before_the_limits_came_learns_when_they_end(queue: Queue, world: World) -> None:
    """Of a message that is written meanwhile."""
    queue.write("first", shard_key="t")
    held = queue.read()
    queue.set_limits({"t": Limits(max_in_flight=1)}, seconds=1)
    queue.write("second", shard_key="t")
    assert queue.read(block=60).payload == "second"
    assert queue.ack_many([held]) == []


@pytest.mark.parametrize("ends_first", ["limits", "pause", "weight"])
def test_each_ends_by_itself_and_leaves_the_others(queue: Queue, ends_first: str) -> None:
    seconds = {each: 0.1 if each == ends_first else None for each in ("limits", "pause", "weight")}
    queue.pause("t", seconds=seconds["pause"])
    queue.set_limits({"t": Limits(rate=2.5)}, seconds=seconds["limits"])
    queue.set_weights({"t": 3}, seconds=seconds["weight"])

    def told() -> dict[str, Any]:
        return {"limits": queue.limits(), "pause": queue.paused(), "weight": queue.weights()}

    over(queue, lambda: told()[ends_first])
    kept = {"limits": {"t": Limits(rate=2.5)}, "pause": {"t": math.inf}, "weight": {"t": 3}}
    assert told() == {**kept, ends_first: {}}
    queue.resume("t")
    queue.set_limits({"t": Limits()})
    queue.set_weights({"t": 1})
    assert told() == {"limits": {}, "pause": {}, "weight": {}}


def test_nothing_is_left_behind(queue: Queue, world: World) -> None:
    """But for what the list of limits forgets when somebody is given others."""
    queue.set_limits({"t": "slow", "u": Limits(max_in_flight=1)}, seconds=0.05)
    queue.set_weights({"t": 3, "v": 2}, seconds=0.05)
    over(queue, lambda: queue.limits() or queue.weights())
    keys = queue.state.keys
    eventually(lambda: queue.read_many(1) == [] and world.raw.zcard(keys.due) == 1, what="an empty index")
    assert not [field for field in world.raw.hkeys(keys.meta) if field.startswith(b"t:")]
    queue.delete_plan("slow")
    queue.set_weights({"other": 1})
    assert world.raw.hkeys(keys.limits) == [b""]


def test_limits_that_are_given_again_have_the_end_that_was_said_last(queue: Queue) -> None:
    queue.set_limits({"t": Limits(rate=5)}, seconds=0.05)
    queue.set_limits({"t": Limits(rate=6)})
    queue.set_limits({"u": Limits(rate=5)})
    queue.set_limits({"u": Limits(rate=6)}, seconds=0.05)
    over(queue, lambda: "u" in queue.limits())
    assert queue.limits() == {"t": Limits(rate=6)}
    assert queue.controls().limits["t"].until == math.inf


def test_a_weight_that_is_over_counts_no_more(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, max_in_flight=1)
    queue.write_many([(number, tenant) for number in range(9) for tenant in ("heavy", "light")])
    queue.set_weights({"heavy": 3}, seconds=60)
    held = queue.read_many(99)
    assert Counter(each.shard_key for each in held) == {"heavy": 3, "light": 1}
    queue.set_weights({"heavy": 3}, seconds=0.05)
    eventually(lambda: queue.weights() == {}, what="the end")
    assert queue.ack_many(held) == []
    assert Counter(each.shard_key for each in queue.read_many(99)) == {"heavy": 1, "light": 1}


def test_the_weight_of_a_child_ends(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    queue.write_many([(number, f"acct/{child}") for number in range(40) for child in "ab"])
    queue.set_weights({"acct/a": 3}, seconds=0.05)
    eventually(lambda: queue.weights() == {}, what="the end")
    found: list[Delivery] = []
    while len(found) < 40:
        found += queue.read_many(1)
    came = Counter(each.shard_key for each in found)
    assert abs(came["acct/a"] - came["acct/b"]) <= 4, "before its end it had some more turns at most"


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 367 * 86_400, "60", True])
def test_a_bad_end_is_refused(queue: Queue, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="seconds must be"):
        queue.set_limits({"t": Limits(rate=5)}, seconds=seconds)
    with pytest.raises(ConfigError, match="seconds must be"):
        queue.set_weights({"t": 5}, seconds=seconds)
    assert (queue.limits(), queue.weights()) == ({}, {})


def test_no_change_at_all_is_none(queue: Queue) -> None:
    queue.set_weights({})
    queue.set_weights({}, seconds=60)
    queue.set_limits({}, seconds=60)
    assert (queue.limits(), queue.weights()) == ({}, {})


def test_what_is_taken_back_has_no_end(queue: Queue) -> None:
    with pytest.raises(ConfigError, match="taken back have no end"):
        queue.set_limits({"t": Limits(rate=5), "u": Limits()}, seconds=60)
    with pytest.raises(ConfigError, match="taken back have no end"):
        queue.set_weights({"t": 5, "u": 1}, seconds=60)
    assert (queue.limits(), queue.weights()) == ({}, {})


def test_the_tenant_and_its_messages_say_what_is_in_force(queue: Queue) -> None:
    first, second = queue.write_many([(number, "t") for number in range(2)])
    queue.set_limits({"t": Limits(max_in_flight=1)}, seconds=60)
    queue.read()
    assert queue.tenant("t").limits == Limits(max_in_flight=1)
    assert queue.status(second).reason == "max_in_flight"
    queue.set_limits({"t": Limits(max_in_flight=1)}, seconds=0.05)
    eventually(lambda: queue.limits() == {}, what="the end")
    assert queue.tenant("t").limits in (None, Limits())
    assert queue.status(second).reason == "window"
    assert queue.stats().runnable == 1
    assert queue.status(first).state == "in_flight"
