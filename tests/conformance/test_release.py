"""Dedup keys that are released, and those that are remembered for longer than the queue says."""

from __future__ import annotations

import pytest

from shardq import Message, Queue
from shardq.ops.outgoing import Outgoing
from shardq.ops.release import release
from shardq.ops.write import write_many
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


@pytest.mark.everywhere
def test_a_released_key_is_forgotten_and_the_others_are_not(queue: Queue, world: World) -> None:
    first = queue.write_many([Message(number, "t", dedup_key=f"k-{number}") for number in range(5)])
    assert queue._client.run(release(queue.state, ["k-1", "k-3", "k-1"])) == 2
    again = queue.write_many([Message(number, "t", dedup_key=f"k-{number}") for number in range(5)])
    assert [number for number in range(5) if again[number] != first[number]] == [1, 3]
    keys = queue.state.keys
    assert len([field for field in world.raw.hkeys(keys.dedup) if field.startswith(b"k:")]) == 5
    assert world.raw.zcard(keys.dedup_index) == 6, "the sentinel is one"


def test_a_key_that_was_never_stored_is_released_without_a_trace(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t", dedup_key="k")
    keys = queue.state.keys
    before = world.raw.hgetall(keys.dedup), world.raw.zrange(keys.dedup_index, 0, -1)
    assert queue._client.run(release(queue.state, ["other", "p:producer"])) == 0
    assert queue._client.run(release(queue.state, [])) == 0
    assert (world.raw.hgetall(keys.dedup), world.raw.zrange(keys.dedup_index, 0, -1)) == before


def test_more_than_a_thousand_keys_are_released_in_parts(queue: Queue, world: World) -> None:
    queue.write_many([Message(number, "t", dedup_key=f"k-{number}") for number in range(1200)])
    assert queue._client.run(release(queue.state, [f"k-{number}" for number in range(1200)])) == 1200
    assert world.raw.zcard(queue.state.keys.dedup_index) == 1


def test_a_state_may_remember_its_keys_for_longer_than_the_queue_says(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, dedup_window=60)
    queue.write(0, shard_key="t")
    client = queue._client
    longer = client.state_of(queue.name, {}, remember=3600.0)
    assert longer is not queue.state
    assert longer is client.state_of(queue.name, {}, remember=3600.0)
    (first,) = client.run(write_many(longer, [Outgoing("t", "b", b"x", dedup_key="long")]))
    queue.write(1, shard_key="t", dedup_key="short")
    ends = dict(world.raw.zrange(queue.state.keys.dedup_index, 0, -1, withscores=True))
    assert 3500_000 < ends[b"k:long"] - ends[b"k:short"] < 3600_000
    assert queue.write(2, shard_key="t", dedup_key="long") == first
