"""Rules of fairness that change while messages wait: who has room by the new ones is let in soon, whoever it is."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from shardq import Delivery, Message, Queue
from tests.conformance.conftest import OpenQueue
from tests.conformance.read.test_fairness import drained, flood, sound
from tests.conformance.world import World
from tests.state import odd_of
from tests.waiting import eventually

MANY = [f"tenant-{number}" for number in range(100)]
STEPS = 64
"""So many shard keys a read meets, of those that have something held."""


def taken(queue: Queue, batch: int = 100) -> list[Delivery]:
    """Read all there is, and keep it."""
    found: list[Delivery] = []
    while some := queue.read_many(batch):
        found += some
    return found


@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 50])
def test_when_the_cap_is_switched_off_those_who_were_at_it_come_while_others_go_on(
    open_queue: OpenQueue, world: World, batch: int
) -> None:
    """What they have in flight stays there: nothing of theirs is in the streams, and no ack of theirs comes."""
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2)
    queue.write_many([(number, key) for number in range(3) for key in MANY])
    held = taken(queue)
    assert len(held) == 2 * len(MANY)
    queue.configure(max_in_flight=0)
    seen: set[object] = set()
    for number in range(2 * len(MANY) // batch + len(MANY) // STEPS + 2):
        flood(queue, "busy", 2 * batch, first=number)
        some = queue.read_many(batch)
        held += some  # who has fewest in flight comes first
        seen.update(each.shard_key for each in some)
    assert seen == {"busy", *MANY}
    assert sound(queue, world)
    assert queue.ack_many(held) == []
    drained(queue)
    assert (queue.len(), queue.stats().held_back) == (0, 0)
    assert sound(queue, world)


@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1])
def test_when_the_cap_is_raised_everybody_gets_up_to_it(open_queue: OpenQueue, world: World, window: int) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2, window=window)
    queue.write_many([(number, key) for number in range(8) for key in MANY])
    held = taken(queue)
    queue.configure(max_in_flight=5)
    held += taken(queue)
    assert Counter(Counter(each.shard_key for each in held).values()) == {5: len(MANY)}
    assert sound(queue, world)
    queue.configure(max_in_flight=3)
    assert queue.read_many(9) == []
    assert queue.ack_many(held[: 2 * len(MANY)]) == []
    queue.configure(max_in_flight=50)
    held += taken(queue)
    assert len(held) == 8 * len(MANY)
    assert sound(queue, world)


def test_when_weights_are_given_a_cap_is_as_many_times_as_wide_at_once(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2)
    queue.write_many([(number, key) for number in range(8) for key in MANY])
    held = taken(queue)
    queue.set_weights(dict.fromkeys(MANY[::2], 3))
    held += taken(queue)
    assert Counter(Counter(each.shard_key for each in held).values()) == {6: len(MANY) // 2, 2: len(MANY) // 2}
    assert sound(queue, world)


@pytest.mark.once
def test_when_the_window_changes_everything_is_delivered_and_counted(
    open_queue: OpenQueue, world: World, real: None
) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    for key in MANY:
        flood(queue, key, 10)
    found = 0
    for window in (5, 0, 2, 1_000_000, 0):
        queue.configure(window=window)
        for batch in (1, 3, 100):
            some = queue.read_many(batch)
            found += len(some)
            assert queue.ack_many(some) == []
            assert sound(queue, world)
    assert found + len(drained(queue)) == 10 * len(MANY)
    assert (queue.len(), queue.stats().held_back) == (0, 0)
    assert sound(queue, world)


def test_a_blocked_reader_learns_that_there_is_room(open_queue: OpenQueue, world: World, real: None) -> None:
    queue, other = open_queue(streams=4, streams_per_shard=2, max_in_flight=1), open_queue(by=world.client())
    queue.write_many([(number, "t") for number in range(3)])
    held = queue.read_many(9)
    assert len(held) == 1
    found: list[Any] = []
    for change in (lambda: other.configure(max_in_flight=2), lambda: other.set_weights({"t": 2})):
        reader = threading.Thread(target=lambda: found.append(queue.read(block=60).payload))
        reader.start()
        eventually(lambda: world.blocked(queue) > 0)
        change()
        reader.join(30)
        assert not reader.is_alive()
    assert found == [1, 2]


def test_once_all_were_met_nothing_remains_of_it(open_queue: OpenQueue, world: World) -> None:
    """Many changes while it goes on make it no longer than one more round."""
    queue = open_queue(streams=4, streams_per_shard=2, max_in_flight=1)
    queue.write_many([(number, key) for number in range(2) for key in MANY])
    held = taken(queue)
    assert len(held) == len(MANY)
    for _ in range(9):
        queue.configure(max_dead=100)
        queue.set_weights({"somebody": 3})
    for _ in range(2 * (len(MANY) // STEPS + 1)):
        assert queue.read_many(1) == []
    assert "walk" not in odd_of(world.raw, queue.state.keys)
    assert queue.ack_many(held) == []
    assert len(drained(queue)) == len(MANY)
    assert sound(queue, world)


@pytest.mark.once
def test_after_a_purge_that_was_cut_short_what_is_left_is_delivered(
    open_queue: OpenQueue, world: World, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had removed what some shard keys had in the streams; others go on, so these are never empty."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    for key in MANY:
        flood(queue, key, 3)
    monkeypatch.setattr("shardq.ops.operate.queues.PURGE_CHUNK", 50)
    _purge_once(queue, monkeypatch)
    assert sound(queue, world)
    left, seen = queue.len(), 0
    assert left == 3 * len(MANY) - 50
    for number in range(5):
        flood(queue, f"new-{number}", left)
    for _ in range(2 * left):
        each = queue.read()
        each.ack()
        seen += str(each.shard_key).startswith("tenant-")
    assert seen == left
    assert sound(queue, world)


def _purge_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge whose client ends after its first call."""

    class Cut(Exception):
        pass

    def cut(*_: object) -> float:
        raise Cut

    with monkeypatch.context() as patch:
        started = iter([0.0])
        real = type(queue.state).until
        patch.setattr(type(queue.state), "until", lambda *args: real(*args) if next(started, None) == 0.0 else cut())
        with pytest.raises(Cut):
            queue.purge()


def test_a_full_purge_of_delayed_messages_leaves_nothing_to_be_met(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.write_many([Message(number, "t", delay=50 if number % 2 else None) for number in range(40)])
    assert queue.purge() == 40
    assert queue.read_many(1) == []
    assert sound(queue, world)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.parametrize("batch", [1, 50])
def test_a_walk_goes_on_while_due_messages_fill_every_read(
    real: None, open_queue: OpenQueue, world: World, batch: int
) -> None:
    """Those who were at the cap are found by the walk alone, and no read is ever left with nothing."""
    queue = open_queue(streams=8, streams_per_shard=2, max_in_flight=2)
    queue.write_many([(number, key) for number in range(3) for key in MANY])
    held = [each for _ in range(4) for each in queue.read_many(100, visibility_timeout=600)]
    assert len(held) == 2 * len(MANY)
    queue.write_many([Message(number, f"due-{number % 50}", delay=50) for number in range(4000)])
    world.elapse(queue, 60)
    queue.configure(max_in_flight=0)
    seen: set[object] = set()
    for _ in range(1000 // batch):
        some = queue.read_many(batch)
        assert some
        held += some  # who has fewest in flight comes first
        seen.update(each.shard_key for each in some)
    assert seen >= set(MANY)
    assert sound(queue, world)
