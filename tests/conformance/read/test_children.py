"""The children of a parent take turns by weight, also after some of them had all that waited of them cancelled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shardq import Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import sound
from tests.conformance.world import World


def family(open_queue: OpenQueue) -> Queue:
    """A queue with a parent that has one message in flight and one in a stream: all that is written later waits."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    queue.write_many([(n, "p/first") for n in range(2)])
    queue.read(visibility_timeout=10_000)
    return queue


def written(queue: Queue, child: str, count: int = 1) -> Sequence[str]:
    return queue.write_many([(n, f"p/{child}") for n in range(count)])


def cancelled(queue: Queue, ids: Sequence[str]) -> None:
    assert [queue.cancel(each) for each in ids] == ["removed"] * len(ids)


def read_singly(queue: Queue, count: int) -> str:
    """Whose the next messages are, a letter for each."""
    return "".join(str(queue.read(block=0).shard_key)[2] for _ in range(count))


def test_a_child_that_was_cancelled_and_comes_again_has_one_turn(open_queue: OpenQueue, world: World) -> None:
    queue = family(open_queue)
    for _ in range(5):
        written(queue, "b")
        cancelled(queue, written(queue, "a", 3))
    written(queue, "a", 6)
    assert read_singly(queue, 12) == "fbababababaa"
    assert sound(queue, world)


def test_a_child_that_was_cancelled_within_its_turn_gains_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = family(open_queue)
    queue.set_weights({"p/a": 3})
    ids = written(queue, "a", 3)
    written(queue, "b", 8)
    assert read_singly(queue, 3) == "faa"
    cancelled(queue, ids[2:])
    written(queue, "a", 6)  # its turn ended with its last message; it comes behind the others again
    assert read_singly(queue, 8) == "baaabaaa"
    assert sound(queue, world)


def test_children_that_are_gone_hold_no_read_up(open_queue: OpenQueue, world: World) -> None:
    """The one who has something is served, though hundreds before it have nothing any more."""
    queue = family(open_queue)
    gone = queue.write_many([(n, f"p/{n:03}-{'x' * 900}") for n in range(200)])
    kept = written(queue, "last")
    cancelled(queue, gone[1:])
    queue.read()
    assert [each.message_id for each in queue.read_many(2)] == [gone[0], *kept]
    assert sound(queue, world)


@pytest.mark.parametrize("way", ["cancel", "purge"])
def test_nothing_is_kept_of_children_that_are_gone(open_queue: OpenQueue, world: World, way: str) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    held = []
    for _ in range(3):
        queue.write(0, shard_key="p/first")
        held.append(queue.read(visibility_timeout=10_000))
        ids = [each for child in "abcdefghij" for each in written(queue, child * 200, 3)]
        if way == "cancel":
            cancelled(queue, ids)
        else:
            assert queue.purge() == 30
    assert queue.ack_many(held) == []
    assert world.raw.hkeys(queue.state.keys.bodies) in ([], [b""])
    assert [name for name in world.raw.hkeys(queue.state.keys.meta) if name[:2] in (b"c:", b"t:")] == []


def test_nothing_is_kept_of_children_that_are_gone_behind_one_that_waits(open_queue: OpenQueue, world: World) -> None:
    """Else a tenant could fill the server by children that it cancels, and no bound would count them."""
    queue = family(open_queue)
    written(queue, "waits")
    before = world.raw.hlen(queue.state.keys.meta)
    for turn in range(300):
        cancelled(queue, written(queue, f"{turn}-{'x' * (turn % 90)}"))
    assert world.raw.hlen(queue.state.keys.meta) - before <= 3
    assert world.raw.hlen(queue.state.keys.bodies) <= 20
    assert sound(queue, world)


@pytest.mark.parametrize("parents", [0, 1])
def test_a_message_behind_many_large_ones_that_were_cancelled_comes(
    open_queue: OpenQueue, world: World, parents: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=parents)
    queue.write(0, shard_key="p/a")
    queue.read(visibility_timeout=10_000)
    ids = queue.write_many([(b"x" * 600, "p/a") for _ in range(200)])
    cancelled(queue, ids[3:-1])
    assert [queue.read(block=0).message_id for _ in range(4)] == [*ids[:3], ids[-1]]
    assert sound(queue, world)
