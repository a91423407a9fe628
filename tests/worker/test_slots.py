"""Slots that queues share: each has its part when it needs it, and lends what it does not."""

from __future__ import annotations

from random import Random

import pytest

from shardq import ConfigError
from shardq.worker.slots import Share, Slots, parts


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [(4, [3, 1], [3, 1]), (2, [9, 1], [1, 1]), (64, [3, 1], [48, 16]), (10, [1, 1, 1], [4, 3, 3])],
)
def test_slots_are_divided_by_weights(total: int, weights: list[int], expected: list[int]) -> None:
    assert parts(total, weights) == expected


def test_each_queue_needs_a_slot() -> None:
    with pytest.raises(ConfigError, match="at least 3"):
        Slots(2, [1, 1, 1])


def shares(total: int, *weights: int) -> tuple[Slots, list[Share]]:
    slots = Slots(total, weights)
    slots.nudges += [lambda: None for _ in weights]
    return slots, [slots.share(number) for number in range(len(weights))]


def test_what_a_queue_does_not_need_the_others_use() -> None:
    _, (busy, idle) = shares(16, 3, 1)
    assert (busy.take(100), idle.take(100)) == (12, 4)
    idle.give(4, is_idle=True)
    assert (idle.take(100), busy.take(100)) == (1, 3), "it keeps one, for its next message"
    idle.give(0, is_idle=False)
    assert idle.free() == busy.free() == 0, "all slots are taken"
    busy.give(2)
    assert (busy.free(), idle.take(100)) == (0, 2), "it gets its part back first"
    busy.give(1)
    assert (busy.free(), idle.take(100)) == (0, 1)
    busy.give(1)
    assert busy.free() == 1


def test_a_queue_that_got_nothing_is_told_when_slots_come_free() -> None:
    slots, (one, other) = shares(4, 1, 1)
    told: list[str] = []
    slots.nudges[:] = [lambda: told.append("one"), lambda: told.append("other")]
    other.take(1)
    other.give(0, is_idle=True)
    assert one.take(4) == 3
    other.give(0, is_idle=False)
    assert other.free() == 0
    one.give(1)
    assert told == ["other"]
    assert other.take(5) == 1
    one.give(1)
    assert told == ["other"], "it has not asked in vain since"


def test_there_are_never_more_than_all_and_none_is_left_unused(rng: Random) -> None:
    for _ in range(200):
        weights = [rng.randint(1, 5) for _ in range(rng.randint(2, 4))]
        total = rng.randint(len(weights), 20)
        _, all_shares = shares(total, *weights)
        taken = [0] * len(weights)
        for _ in range(100):
            number = rng.randrange(len(weights))
            if rng.random() < 0.5:
                taken[number] += all_shares[number].take(rng.randint(1, total))
            elif taken[number]:
                count = rng.randint(1, taken[number])
                all_shares[number].give(count, is_idle=rng.choice([None, True, False]))
                taken[number] -= count
            assert sum(taken) <= total
        for number, share in enumerate(all_shares):
            share.give(taken[number], is_idle=number != 0)
        assert all_shares[0].take(100) == total - len(weights) + 1
