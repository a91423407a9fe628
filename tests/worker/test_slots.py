"""Slots that queues share: each has its part when it needs it, and lends what it does not."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from shardq import ConfigError
from shardq.worker.slots import QueueSlots, SlotShare, parts


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [(4, [3, 1], [3, 1]), (2, [9, 1], [1, 1]), (64, [3, 1], [48, 16]), (10, [1, 1, 1], [4, 3, 3])],
)
def test_slots_are_divided_by_weights(total: int, weights: list[int], expected: list[int]) -> None:
    assert parts(total, weights) == expected


def test_each_queue_needs_a_slot() -> None:
    with pytest.raises(ConfigError, match="at least 3"):
        QueueSlots(2, [1, 1, 1])


def shares(total: int, *weights: int) -> tuple[QueueSlots, list[SlotShare]]:
    slots = QueueSlots(total, weights)
    return slots, slots.shares


AT_ONCE = 0.0
"""Seconds of a read that has not waited."""


def began(share: SlotShare, found: int = 100, took: float = AT_ONCE) -> int:
    """A read of a queue that has *found* messages. Return how many of them begin; the others are given back."""
    count = min(share.take(100), found)
    if over := share.came(count, took):
        share.give(over)
    return count - over


def test_idle_queues_lend_all_slots_but_one_to_a_busy_one() -> None:
    _, (busy, *others) = shares(64, *[1] * 50)
    assert [began(busy), began(busy)] == [2, 61]
    assert busy.free() == 0
    assert {other.free() for other in others} == {2}, "each may read all the same"


def test_messages_of_idle_queues_begin_in_the_slot_that_is_kept_and_others_are_given_back() -> None:
    _, (busy, one, other) = shares(16, 1, 1, 1)
    assert [began(busy), began(busy)] == [2, 13]
    asked = [share.take(100) for share in (one, other)]
    assert asked == [2, 2], "both reads wait for messages"
    assert (one.came(1, 1.0), other.came(1, 1.0)) == (0, 1)


def test_a_queue_that_was_idle_gets_its_part_back_before_the_others_begin_anything() -> None:
    _, (busy, idle) = shares(16, 3, 1)
    assert [began(busy), began(busy)] == [2, 13]
    assert began(idle) == 1
    assert idle.free() == busy.free() == 0, "all slots are taken"
    busy.give(2)
    assert (busy.free(), began(idle)) == (0, 2)
    busy.give(1)
    assert (busy.free(), began(idle)) == (0, 1)
    busy.give(1)
    assert (busy.free(), idle.free()) == (1, 0), "it has its part"


def test_a_message_that_was_given_back_comes_before_the_slot_that_is_kept() -> None:
    _, (busy, one, other) = shares(6, 1, 1, 1)
    assert [began(busy), began(busy)] == [2, 3]
    assert began(one) == 1
    busy.give(1)
    assert (busy.free(), began(one)) == (0, 1)
    busy.give(1)
    assert (busy.free(), other.free()) == (0, 2), "now one is kept again"


def test_more_is_kept_when_messages_of_idle_queues_find_others_at_work() -> None:
    """Else each waited for one before it, for as long as no handler of a busy queue ended."""
    _, (busy, *others) = shares(64, *[1] * 50)
    for number in range(400):
        assert began(others[number % 49], 1, 1.0) == 1
        if number >= 4:
            others[(number - 4) % 49].give(1)  # so four are at work
    assert began(busy) + began(busy) == 64 - 4 - 1 - 4, "as many again"
    for number in range(396, 400):
        others[number % 49].give(1)
    assert busy.free() == 0, "their slots are kept"
    for number in range(400):
        assert began(others[number % 49], 1, 1.0) == 1
        others[number % 49].give(1)
    assert busy.free() == 8, "no message has found another one lately"


def test_a_queue_that_reads_one_message_after_the_other_is_busy_unless_a_read_waits() -> None:
    _, (busy, _other) = shares(4, 1, 1)
    assert [began(busy), began(busy)] == [2, 1]
    busy.give(1)
    assert began(busy) == 1
    busy.give(3)
    assert busy.free() == 3, "it may have all but the one that is kept"
    assert busy.take(1) == 1
    busy.came(1, 1.0)
    assert busy.free() == 2, "it is idle"


def test_a_queue_whose_messages_come_one_by_one_is_idle_and_reads_on_while_they_are_handled() -> None:
    """It did not read for as long as one of its handlers ran."""
    _, (busy, other) = shares(16, 1, 1)
    assert [began(other, 1) for _ in range(3)] == [1, 1, 1]
    assert [began(busy), began(busy)] == [2, 10]
    assert (busy.free(), other.free()) == (0, 2)


def test_a_read_has_slots_while_it_waits_only_if_the_one_before_found_all_it_asked_for() -> None:
    _, (one, other) = shares(16, 1, 1)
    assert [began(other), other.take(100)] == [2, 13]
    assert [began(one), one.free()] == [1, 0]
    other.came(0, 1.0)
    assert one.free() == 12


def test_a_read_that_fails_gives_its_slots_back() -> None:
    _, (one, other) = shares(4, 1, 1)
    assert [began(one), one.take(100)] == [2, 1]
    one.failed()
    assert (one.free(), other.free()) == (1, 2)


def test_a_queue_that_got_nothing_is_told_when_slots_come_free() -> None:
    _, (one, other) = shares(4, 1, 1)
    told: list[str] = []
    one.nudge, other.nudge = partial(told.append, "one"), partial(told.append, "other")
    assert [began(one), began(one), began(other)] == [2, 1, 1]
    assert other.free() == 0
    one.give(1)
    assert told == ["other"]
    assert began(other) == 1
    one.give(1)
    assert told == ["other"], "it has not asked in vain since"


def began_all(share: SlotShare) -> int:
    """Read until nothing begins."""
    return sum(iter(partial(began, share), 0))


class Queues:
    """Queues at work: how many messages of each run, and for how many its read asks."""

    def __init__(self, shares: list[SlotShare]) -> None:
        self.shares, self.runs, self.asked = shares, [0] * len(shares), [0] * len(shares)

    def step(self, number: int, rng: Random) -> None:
        """Begin or end the read of a queue, or end one of its handlers."""
        share = self.shares[number]
        if self.runs[number] and rng.random() < 0.4:
            self.runs[number] -= 1
            share.give(1)
        elif self.asked[number]:
            self.arrive(number, rng.randint(0, self.asked[number]), rng.choice([AT_ONCE, 1.0]))
        else:
            self.asked[number] = share.take(rng.randint(1, 20))

    def arrive(self, number: int, count: int, took: float) -> None:
        over = self.shares[number].came(count, took)
        self.shares[number].give(over)
        self.runs[number] += count - over
        self.asked[number] = 0

    def end(self) -> None:
        """Let all handlers and reads end, and let each queue find nothing once more."""
        for number, share in enumerate(self.shares):
            share.give(self.runs[number])
            if self.asked[number]:
                self.arrive(number, 0, 1.0)
        for share in self.shares:
            assert share.take(1) == 1
            share.came(0, 1.0)


def test_there_are_never_more_than_all_and_none_is_left_unused(rng: Random) -> None:
    for _ in range(200):
        weights = [rng.randint(1, 5) for _ in range(rng.randint(2, 4))]
        total = rng.randint(len(weights), 20)
        _, all_shares = shares(total, *weights)
        queues = Queues(all_shares)
        for _ in range(100):
            queues.step(rng.randrange(len(weights)), rng)
            assert sum(queues.runs) <= total
        queues.end()
        first, *others = all_shares
        of_first = began_all(first)
        of_others = sum(began_all(share) for share in others)
        assert of_first < of_first + of_others == total, "one is kept"
