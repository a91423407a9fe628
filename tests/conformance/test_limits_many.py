"""Limits of many shard keys at once, and of those that have much in flight: no call does too much of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardq import ConfigError, Delivery, Limits, Queue
from shardq.engine import NEW
from shardq.ops.settle import CHUNK, most_settled
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
    if not NEW:
        assert world.raw.hget(queue.state.keys.meta, "limited") == b"1"


def test_too_many_at_once_are_refused_whole(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.declare()
    with pytest.raises(ConfigError, match="10,000"):
        queue.set_limits({f"t{number}": Limits(rate=1) for number in range(10_001)})
    assert queue.limits() == {}


@pytest.mark.skipif(NEW, reason="limits cost the next engine nothing there")
def test_a_call_settles_fewer_where_shard_keys_have_limits(open_queue: OpenQueue) -> None:
    """Each takes longer then. Clients learn of it when they look the queue up again, after the change."""
    queue = open_queue(streams=8, streams_per_shard=2)
    ids = queue.write_many([(number, f"t{number}") for number in range(CHUNK)])
    assert most_settled(queue.state) == CHUNK
    queue.set_limits({"somebody": Limits(max_in_flight=1)})
    found: list[Delivery] = []
    while len(found) < len(ids):
        found += queue.read_many(CHUNK)
    assert queue.ack_many(found[:-1]) == []
    assert most_settled(queue.state) < CHUNK
    assert len(queue.nack_many(found)) == CHUNK - 1
    assert queue.len() == 1
    queue.set_limits({"somebody": Limits()})
    queue.read().ack()
    queue.write("next", shard_key="t")
    assert most_settled(queue.state) == CHUNK
