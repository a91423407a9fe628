"""Dedup keys that are released, and those that are remembered for longer than the queue says."""

from __future__ import annotations

import pytest

from shardq import Queue, Written
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


def sent(queue: Queue, count: int) -> list[Written]:
    """As a gateway writes: with ids of its own clients."""
    messages = [Outgoing("t", "b", b"x", dedup_key=f"k-{number}", most_ids=9000) for number in range(count)]
    return queue._client.run(write_many(queue.state, messages))


@pytest.mark.everywhere
def test_a_gateways_ids_are_nobody_elses_dedup_keys(open_queue: OpenQueue) -> None:
    for scope in ("shard_key", "queue"):
        queue = open_queue(streams=4, key_scope=scope)
        (first,) = sent(queue, 1)
        for key in ("k-0", "1:tk-0", "g:k-0"):
            assert queue.write("a guess", shard_key="t", dedup_key=key).is_new
        assert queue._client.run(release(queue.state, ["g:k-0", "1:tk-0"])) == 0
        assert sent(queue, 1) == [first]
        queue.delete(expected=None)


@pytest.mark.everywhere
def test_a_released_key_is_forgotten_and_the_others_are_not(queue: Queue, world: World) -> None:
    first = sent(queue, 5)
    assert queue._client.run(release(queue.state, ["k-1", "k-3", "k-1"])) == 2
    again = sent(queue, 5)
    assert [number for number in range(5) if again[number] != first[number]] == [1, 3]
    keys = queue.state.keys
    assert len([field for field in world.raw.hkeys(keys.dedup) if field.startswith(b"g:")]) == 5
    assert world.raw.zcard(keys.dedup_index) == 6, "the sentinel is one"


def test_a_key_that_was_never_stored_is_released_without_a_trace(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t", dedup_key="k")
    keys = queue.state.keys
    before = world.raw.hgetall(keys.dedup), world.raw.zrange(keys.dedup_index, 0, -1)
    assert queue._client.run(release(queue.state, ["other", "p:producer"])) == 0
    assert queue._client.run(release(queue.state, [])) == 0
    assert (world.raw.hgetall(keys.dedup), world.raw.zrange(keys.dedup_index, 0, -1)) == before


def test_more_than_a_thousand_keys_are_released_in_parts(queue: Queue, world: World) -> None:
    sent(queue, 1200)
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
    assert 3500_000 < ends[b"k:1:tlong"] - ends[b"k:1:tshort"] < 3600_000
    assert queue.write(2, shard_key="t", dedup_key="long") == first
