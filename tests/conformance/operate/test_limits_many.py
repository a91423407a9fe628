"""Limits of many shard keys at once, and of those that have much in flight: no call does too much of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardq import ConfigError, Limits, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


def delivered(queue: Queue) -> Counter[Any]:
    """How many of each parent, or shard key, there were for delivery. They stay in flight."""
    came: Counter[Any] = Counter()
    while found := queue.read_many(500):
        came.update(str(each.shard_key).partition("/")[0] for each in found)
    return came


@pytest.mark.parametrize("parents", [0, 1])
def test_what_many_have_in_flight_counts(open_queue: OpenQueue, real: None, parents: int) -> None:
    """More than one call counts."""
    queue = open_queue(streams=8, streams_per_shard=2, parents=parents)
    queue.declare()
    names = [f"t{number}" for number in range(60)]
    keys = [f"{name}/{child}" if parents else name for name in names for child in ("a", "b")]
    for _ in range(25):
        queue.write_many([(0, key) for key in keys])
    assert delivered(queue) == dict.fromkeys(names, 50)
    queue.write_many([(0, key) for key in keys])
    queue.set_limits(dict.fromkeys(names, Limits(max_in_flight=50)))
    assert delivered(queue) == {}
    queue.set_limits(dict.fromkeys(names, Limits(max_in_flight=51)))
    assert delivered(queue) == dict.fromkeys(names, 1)
    queue.set_limits(dict.fromkeys(names, Limits()))
    assert delivered(queue) == dict.fromkeys(names, 1)


def test_one_key_in_two_spellings_has_the_limits_that_come_last(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    queue.declare()
    queue.set_limits({"t": Limits(rate=1), b"t": Limits(max_in_flight=2)})
    assert queue.limits() == {"t": Limits(max_in_flight=2)}


def test_too_many_at_once_are_refused_whole(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.declare()
    with pytest.raises(ConfigError, match="10,000"):
        queue.set_limits({f"t{number}": Limits(rate=1) for number in range(10_001)})
    assert queue.limits() == {}


def test_pauses_that_are_over_are_forgotten(open_queue: OpenQueue, world: World) -> None:
    """They end where messages wait; who lists them would find more and more."""
    queue = open_queue(streams=4)
    queue.declare()
    world.raw.hset(queue.state.keys.limits, mapping={f"over{number}": ",,,1,1,1" for number in range(20)})
    queue.pause("never")
    for number in range(8):
        queue.set_limits({f"t{number}": Limits(rate=1)})
    assert {*world.raw.hkeys(queue.state.keys.limits)} == {b"", b"never", *[b"t%d" % number for number in range(8)]}
