"""dedup_key: one message within the window, across clients; bounded."""

from __future__ import annotations

import pytest

from shardq import Message, Queue, QueueFull
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually


@pytest.mark.everywhere
def test_a_second_write_with_the_key_returns_the_first_ones_id(queue: Queue) -> None:
    first = queue.write("first", shard_key="t", dedup_key="order-1")
    again = queue.write("second", shard_key="t", dedup_key="order-1")
    assert (again, first.is_new, again.is_new) == (first, True, False)
    assert queue.write("other", shard_key="t", dedup_key="order-2") != first
    assert sorted(each.payload for each in queue.read_many(9)) == ["first", "other"]


@pytest.mark.everywhere
def test_a_tenants_key_says_nothing_of_anothers_message(open_queue: OpenQueue) -> None:
    """Else whoever guesses a key is told the id, and with that the result, of another tenant's message."""
    queue = open_queue(streams=4, result_ttl=60)
    mine = queue.write("mine", shard_key="a", dedup_key="order-1")
    yours = queue.write("yours", shard_key="b", dedup_key="order-1")
    assert yours != mine
    assert yours.is_new
    for delivery in queue.read_many(2):
        delivery.ack(result=f"result of {delivery.payload}")
    assert [queue.result(each) for each in (mine, yours)] == ["result of mine", "result of yours"]


@pytest.mark.everywhere
def test_a_queue_may_share_its_keys(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, key_scope="queue")
    first = queue.write("first", shard_key="a", dedup_key="order-1")
    assert queue.write("second", shard_key="b", dedup_key="order-1") == first
    assert queue.len() == 1


def test_the_key_counts_across_clients(open_queue: OpenQueue, world: World) -> None:
    first = open_queue(streams=4).write(1, shard_key="t", dedup_key="k")
    other = open_queue(by=world.client(), streams=4)
    assert other.write(1, shard_key="t", dedup_key="k") == first
    assert other.len() == 1


@pytest.mark.everywhere
def test_the_key_counts_after_the_message_is_settled(queue: Queue) -> None:
    first = queue.write(1, shard_key="t", dedup_key="k")
    queue.read().ack()
    assert queue.write(1, shard_key="t", dedup_key="k") == first
    assert queue.len() == 0


def test_a_batch_is_compared_with_itself_and_with_what_was_written(queue: Queue) -> None:
    first = queue.write(0, shard_key="t", dedup_key="a")
    ids = queue.write_many([Message(number, "t", dedup_key=key) for number, key in enumerate("abbc")])
    assert ids[0] == first
    assert ids[1] == ids[2]
    assert len(set(ids)) == 3
    assert queue.len() == 3


def test_a_delayed_message_is_deduplicated_too(queue: Queue) -> None:
    first = queue.write(1, shard_key="t", dedup_key="k", delay=60)
    assert queue.write(1, shard_key="t", dedup_key="k") == first
    assert (queue.len(), queue.stats().delayed) == (0, 1)


@pytest.mark.parametrize("key", ["|", "p:producer", "a|b|c", "ключ", "x" * 512, "\n", "%s"])
def test_any_text_may_be_a_key(queue: Queue, key: str) -> None:
    first = queue.write(1, shard_key="t", dedup_key=key)
    assert queue.write(1, shard_key="t", dedup_key=key) == first
    assert queue.write(1, shard_key="t", dedup_key=key[:1] + "y") != first


def test_the_key_is_forgotten_when_its_window_is_over(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, dedup_window=60)
    first = queue.write(1, shard_key="t", dedup_key="k")
    _let_pass(world, queue, 59)
    assert queue.write(1, shard_key="t", dedup_key="k") == first
    _let_pass(world, queue, 1)
    assert queue.write(1, shard_key="t", dedup_key="k") != first
    assert queue.len() == 2


def accepted(queue: Queue, key: str) -> bool:
    """Whether a write with the key was taken."""
    try:
        return bool(queue.write(key, shard_key="t", dedup_key=key))
    except QueueFull:
        return False


@pytest.mark.once
def test_a_full_window_refuses_new_keys_and_takes_them_again_later(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, dedup_window=60, max_dedup=5)
    taken = [accepted(queue, str(number)) for number in range(9)]
    held = queue.len()
    assert held == 4, "one alone has four fifths"
    assert taken == [True] * held + [False] * (9 - held)
    with pytest.raises(QueueFull, match="max_dedup"):
        queue.write(1, shard_key="t", dedup_key="one more")
    queue.write("without a key", shard_key="t")
    assert not accepted(queue, "late")
    _let_pass(world, queue, 60)
    assert accepted(queue, "late")
    assert queue.len() == held + 2


def _let_pass(world: World, queue: Queue, seconds: float) -> None:
    """The ends of what is remembered move closer by so much."""
    keys = queue.state.keys
    for key, end in world.raw.zrange(keys.dedup_index, 0, -1, withscores=True):
        if value := world.raw.hget(keys.dedup, key):
            earlier = round(end - seconds * 1000)
            world.raw.zadd(keys.dedup_index, {key: earlier})
            world.raw.hset(keys.dedup, key, b"%d|%s" % (earlier, value.partition(b"|")[2]))


def indexed(queue: Queue, world: World) -> int:
    """Of how many keys and bulk offsets the end is known, and the sentinel that stands for none."""
    keys = queue.state.keys
    return sum(int(world.raw.zcard(key)) - 1 for key in (keys.dedup_index, keys.bulk_offsets)) + 1


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.once
def test_what_is_remembered_is_bounded_by_the_window(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, dedup_window=1)
    queue.write_many([Message(number, "t", dedup_key=f"old-{number}") for number in range(50)])
    size = world.raw.hlen(queue.state.keys.dedup)

    def forgotten() -> bool:
        for number in range(10):
            queue.write(number, shard_key="t", dedup_key=f"new-{number}")
        return bool(world.raw.hlen(queue.state.keys.dedup) < size / 2)

    assert size >= 50
    eventually(forgotten, every=0.2)
    assert world.raw.hlen(queue.state.keys.dedup) <= indexed(queue, world)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.once
@pytest.mark.parametrize("keyed", [True, False])
def test_nothing_is_left_of_a_rush_of_keys(open_queue: OpenQueue, world: World, keyed: bool) -> None:
    """Neither when a few keys come after it, nor when none do."""
    queue = open_queue(streams=4, dedup_window=1)
    queue.write_many([Message(number, "t", dedup_key=f"rush-{number}") for number in range(500)])
    writes = 0

    def forgotten() -> bool:
        nonlocal writes
        writes += 1
        queue.write_many(
            [Message(number, "t", dedup_key=f"{writes}-{number}" if keyed else None) for number in range(9)]
        )
        return not any(b"rush" in key for key in world.raw.hkeys(queue.state.keys.dedup))

    assert any(b"rush" in key for key in world.raw.hkeys(queue.state.keys.dedup))
    eventually(forgotten, every=0.02)
    assert writes < 150
    assert world.raw.hlen(queue.state.keys.dedup) == indexed(queue, world)


@pytest.mark.once
def test_a_repeated_key_takes_no_room(open_queue: OpenQueue) -> None:
    """A full queue, or a full window, still answers a repeated write with the first one's id."""
    queue = open_queue(streams=4, max_len=2, max_dedup=2)
    first = queue.write("a", shard_key="t", dedup_key="k")
    queue.write("b", shard_key="t")
    assert queue.write("a", shard_key="t", dedup_key="k") == first
    with pytest.raises(QueueFull, match="max_len"):
        queue.write("c", shard_key="t", dedup_key="new")
    assert queue.len() == 2
