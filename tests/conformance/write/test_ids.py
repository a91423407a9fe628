"""Ids that gateways write: each token keeps its newest, and nobody else has less room for them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from shardq import Message, Queue, Written
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World


def sent(queue: Queue, token: str, numbers: Iterable[int], most: int = 10, shard_key: str = "t") -> list[bool]:
    """Write messages with these ids as a gateway does. Say for each whether it is new."""
    messages = [Outgoing(shard_key, "b", b"x", dedup_key=f"{token}:{number:04}", most_ids=most) for number in numbers]
    written: list[Written] = queue._client.run(write_many(queue.state, messages))
    return [each.is_new for each in written]


@pytest.mark.everywhere
def test_a_token_keeps_its_newest_ids_and_takes_no_others_place(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    sent(queue, "quiet", range(10))
    for number in range(0, 60, 4):  # in calls of one and of many
        sent(queue, "loud", range(number, number + 1), shard_key=f"key-{number}")
        sent(queue, "loud", range(number + 1, number + 4))
    assert not any(sent(queue, "quiet", range(10)))
    assert not any(sent(queue, "loud", range(50, 60)))
    assert all(sent(queue, "loud", range(10)))


def test_an_id_that_comes_twice_in_one_call_is_one_message(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    assert sent(queue, "t", [1, 2, 1, 1], most=2) == [True, True, False, False]
    assert sent(queue, "t", [2, 1], most=2) == [False, False]
    assert (queue.stats().written, ids(queue, world)) == (2, {"g:t:0001", "g:t:0002"})


def test_more_ids_than_a_token_keeps_in_one_call(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    assert all(sent(queue, "t", range(200)))
    assert not any(sent(queue, "t", range(190, 200)))
    assert all(sent(queue, "t", range(180)))


@pytest.mark.parametrize("most", [3, 1])
def test_a_token_that_may_keep_fewer_than_before_loses_its_oldest(
    open_queue: OpenQueue, world: World, most: int
) -> None:
    queue = open_queue(streams=4)
    sent(queue, "t", range(500), most=500)
    for number in range(500, 510):
        sent(queue, "t", [number], most=most)
    assert ids(queue, world) == {f"g:t:{number:04}" for number in range(510 - most, 510)}


def test_ids_take_no_place_in_max_dedup(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, max_dedup=8)
    sent(queue, "a", range(40), most=1000)
    sent(queue, "b", range(40), most=1000)
    for number in range(6):
        queue.write(number, shard_key=f"key-{number}", dedup_key=str(number))
    queue.write("u", shard_key="u", unique_key="u")
    assert all(sent(queue, "b", range(40, 50), most=1000)), "nor do the others' keys take places of ids"
    assert queue.tenant("t").dedup_keys == 0


def ids(queue: Queue, world: World) -> set[str]:
    """The ids that are remembered."""
    return {field.decode() for field in world.raw.hkeys(queue.state.keys.dedup) if field.startswith(b"g:")}


def test_what_is_released_or_ends_leaves_no_trace(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4)
    keys = queue.state.keys
    sent(queue, "a", range(8), most=1000)
    sent(queue, "b", range(8), most=1000)
    assert queue._client.run(release(queue.state, [f"a:{number:04}" for number in (0, 1, 5)])) == 3
    assert all(sent(queue, "a", (0, 1, 5), most=1000))
    world.raw.zadd(
        keys.dedup_index, {field: 1 for field in world.raw.zrange(keys.dedup_index, 0, -1) if field}, xx=True
    )
    queue.write_many([Message(number, "t", dedup_key=str(number)) for number in range(20)])
    assert ids(queue, world) == set()
    left = {field: value for field, value in world.raw.hgetall(keys.dedup).items() if field.startswith(b"i:")}
    assert left == {b"i:": b"0", b"i:a": b"1 11", b"i:b": b"1 8"}
    assert sent(queue, "a", (0, 0), most=1000) == [True, False]


def test_an_id_of_which_only_the_end_is_known_is_forgotten(open_queue: OpenQueue, world: World) -> None:
    """Another program deleted the hash."""
    queue = open_queue(streams=4)
    sent(queue, "a", range(5))
    index = queue.state.keys.dedup_index
    world.raw.hdel(queue.state.keys.dedup, *ids(queue, world))
    world.raw.zadd(index, {field: 1 for field in world.raw.zrange(index, 0, -1) if field}, xx=True)
    sent(queue, "a", range(5, 8))
    assert world.raw.zcard(index) == 4, "the sentinel is one"
