"""The children of a parent take turns by weight, also after some of them had all that waited of them cancelled."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from shardq import Delivery, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import sound
from tests.conformance.world import World


def family(open_queue: OpenQueue) -> Queue:
    """A queue with a parent that has one message in flight, of the child that has one more: what comes later waits."""
    return begun(open_queue)[0]


def begun(open_queue: OpenQueue) -> tuple[Queue, Delivery]:
    """The same, with the delivery that is in flight."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1, parents=1)
    queue.write_many([(n, "p/first") for n in range(2)])
    return queue, queue.read(visibility_timeout=10_000)


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
    assert read_singly(queue, 12) == "ababfabababa"
    assert sound(queue, world)


def test_a_child_that_was_cancelled_within_its_turn_gains_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = family(open_queue)
    queue.set_weights({"p/a": 3})
    ids = written(queue, "a", 3)
    written(queue, "b", 8)
    assert read_singly(queue, 2) == "aa"
    cancelled(queue, ids[2:])
    written(queue, "a", 6)  # two of its three places in flight are taken
    assert read_singly(queue, 8) == "abaaabfa"
    assert sound(queue, world)


def test_children_that_are_gone_hold_no_read_up(open_queue: OpenQueue, world: World) -> None:
    """The one who has something is served, though hundreds before it have nothing any more."""
    queue = family(open_queue)
    gone = queue.write_many([(n, f"p/{n:03}-{'x' * 900}") for n in range(200)])
    kept = written(queue, "last")
    cancelled(queue, gone[1:])
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


def test_settings_that_stay_the_same_leave_children_where_they_are(open_queue: OpenQueue, world: World) -> None:
    queue = family(open_queue)
    ids = [*written(queue, "a", 3), *written(queue, "b", 3)]
    queue.configure(parents=1, fair="messages")
    queue.configure(parents=1, fair="time")
    assert sound(queue, world)
    assert {each.message_id for each in queue.read_many(9)} >= {*ids}


def test_nothing_is_left_of_children_when_a_queue_has_parents_no_more(open_queue: OpenQueue, world: World) -> None:
    queue, first = begun(open_queue)
    for number in range(50):
        written(queue, f"child-{number}")
    batch = queue.read_many(40)
    assert queue.ack_many([first, *batch]) == []  # while others wait, these are ahead
    assert queue.ack_many(queue.read_many(20)) == []
    raw, keys = world.raw, queue.state.keys
    assert raw.zcard(keys.delayed) > 1
    queue.configure(parents=0)
    assert raw.zrange(keys.delayed, 0, -1) == [b""]
    assert queue.read_many(1) == []
    assert [name for name in raw.hkeys(keys.meta) if name[:2] in (b"c:", b"t:")] == []
    assert sound(queue, world)


def as_before(queue: Queue, world: World) -> None:
    """Write what is said of children as earlier versions did: the parent "p" has those of which something waits in a
    ring, in blocks of its overflow; and nobody knows what children have in flight."""
    raw, keys = world.raw, queue.state.keys
    names: list[bytes] = []
    for name, text in raw.hgetall(keys.meta).items():
        if name[:2] == b"c:":
            behind, returned, blocks, weight, *_ = text.split(b" ")
            raw.hset(keys.meta, name, b" ".join((behind, returned, blocks, weight, b"0", b"0")))
            if behind == b"0":
                raw.hdel(keys.meta, name)
            else:
                names.append(name[2:])
    odd = raw.hget(keys.meta, "odd").split(b"\n")
    raw.hset(keys.meta, "odd", b"\n".join(line for line in odd if not line.startswith(b"places=")))
    raw.zrem(keys.delayed, *(each for each in raw.zrange(keys.delayed, 0, -1) if each[:1] == b"p"))
    blocks_of = [names[at : at + 7] for at in range(0, len(names), 7)]
    texts = [b"".join(b"%d:%b" % (len(each), each) for each in some) for some in blocks_of]
    for number, text in enumerate(texts):
        raw.hset(keys.bodies, b"pp\n%d" % number, text)
    ring = b"0.0.%d.%d" % (len(texts) - 1, len(texts[-1]))
    raw.hset(keys.meta, "t:p", re.sub(rb"[^ :]+$", ring, raw.hget(keys.meta, "t:p")))


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_what_an_earlier_version_wrote_is_delivered_once_and_in_order(
    open_queue: OpenQueue, world: World, batch: int
) -> None:
    queue, first = begun(open_queue)
    ids = {child: [*written(queue, child, 3)] for child in [f"child-{number}" for number in range(60)]}
    held = [first, *queue.read_many(20)]
    as_before(queue, world)
    for child in ("child-0", "child-59", "new"):
        ids.setdefault(child, []).extend(written(queue, child))
    gone = ids["child-58"].pop()
    assert queue.cancel(gone) == "removed"
    assert queue.ack_many(held) == []
    found = [*held]
    while some := queue.read_many(batch):
        found += some
        assert queue.ack_many(some) == []
    got = [each.message_id for each in found if each.shard_key != "p/first"]
    assert {child: [each for each in got if each.endswith(f"p%2F{child}")] for child in ids} == ids
    assert len({each.message_id for each in found}) == len(found)
    assert sound(queue, world)


def test_nothing_is_left_of_what_an_earlier_version_wrote_and_a_purge_removed(
    open_queue: OpenQueue, world: World
) -> None:
    queue, first = begun(open_queue)
    for number in range(60):
        written(queue, f"child-{number}")
    as_before(queue, world)
    assert queue.purge() == 61
    first.ack()
    for _ in range(9):
        assert queue.read_many(1) == []  # each read forgets a piece
    raw, keys = world.raw, queue.state.keys
    assert [name for name in raw.hkeys(keys.meta) if name[:2] in (b"c:", b"t:")] == []
    assert raw.hkeys(keys.bodies) in ([], [b""])
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
