"""Turns: what a read is dealt, by what is known of the partitions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from shardq.partitions.turns import BESIDE_QUIET, FRESH, LOOK_AFTER, LOOK_AFTER_MESSAGES, STAYS, Turns
from shardq.testing.clock import ManualClock


def turns_of(*told: tuple[int, int], clock: ManualClock | None = None) -> Turns:
    """Turns that have heard of each partition how many quiet messages and turns it has."""
    turns = Turns(len(told), (clock or ManualClock()).monotonic)
    for at, (quiet, waiting) in enumerate(told):
        turns.heard(at, quiet, waiting)
    return turns


def test_nothing_is_dealt_where_nothing_is_known() -> None:
    assert turns_of((0, 0), (0, 0)).deal(10) == {}
    assert Turns(3, ManualClock().monotonic).deal(1) == {}


def test_quiet_messages_come_first_but_for_one_of_eight() -> None:
    turns = turns_of((100, 0), (0, 5))
    dealt = Counter[int]()
    for _ in range(10 * BESIDE_QUIET):
        (at,) = turns.deal(1)
        dealt[at] += 1
        turns.settled(at, 0.0)
        turns.heard(0, 100, 0)
    assert dealt[0] >= 10 * (BESIDE_QUIET - 1)


def test_who_wants_more_than_is_known_asks_for_the_rest_wherever_something_is() -> None:
    turns = turns_of((2, 0), (3, 0), (0, 0))
    dealt = turns.deal(15)
    assert dealt == {0: 7, 1: 8}
    assert sum(turns.deal(15, among=[1]).values()) == 3


def test_who_wants_much_of_what_nobody_knows_asks_all() -> None:
    turns = Turns(3, ManualClock().monotonic)
    assert turns.deal(2) == {}
    assert turns.deal(7) == {0: 3, 1: 2, 2: 2}


def test_what_is_known_may_be_old_and_a_read_of_it_finds_out() -> None:
    turns = turns_of((2, 0), (3, 0))
    turns.deal(5)
    assert turns.deal(1) in ({0: 1}, {1: 1})  # what is known is old by now: the read finds out


def test_a_batch_is_dealt_by_weight() -> None:
    """Twice as many tenants wait in one partition, so it gives twice as much."""
    dealt = turns_of((0, 20), (0, 10)).deal(30)
    assert abs(dealt[0] - 20) <= 1
    assert dealt[0] + dealt[1] == 30


@pytest.mark.parametrize("works", [(0.01, 0.01), (0.04, 0.01)])
def test_handlers_are_shared_by_weight_whatever_the_work_takes(works: tuple[float, float]) -> None:
    """16 handlers, and in each partition as many tenants: each partition's share of the handlers' time is half."""
    rng, turns = Random(7), turns_of((0, 10), (0, 10))
    ends: list[tuple[float, int, float]] = []
    spent, now = [0.0, 0.0], 0.0
    for _ in range(4000):
        if len(ends) == 16:
            ends.sort(reverse=True)
            now, at, took = ends.pop()
            turns.settled(at, took)
            spent[at] += took
        (at,) = turns.deal(1)
        took = works[at] * rng.uniform(0.5, 1.5)
        ends.append((now + took, at, took))
    assert 0.8 < spent[0] / spent[1] < 1.25


def test_a_partition_that_comes_anew_has_no_claim_on_what_the_others_were_served() -> None:
    turns = turns_of((0, 1), (0, 0))
    for _ in range(100):
        assert turns.deal(1) == {0: 1}
        turns.settled(0, 1.0)
    turns.heard(1, 0, 1)
    dealt = Counter[int]()
    for _ in range(20):
        (at,) = turns.deal(1)
        dealt[at] += 1
        turns.settled(at, 1.0)
    assert abs(dealt[0] - dealt[1]) <= 2


def test_what_did_not_come_is_not_in_flight() -> None:
    turns = turns_of((0, 1), (0, 1))
    dealt = turns.deal(10)
    for at, count in dealt.items():
        turns.left(at, count + 5)
    assert turns.deal(10) == dealt


def test_a_read_that_found_nothing_forgets_what_was_known() -> None:
    turns = turns_of((5, 5), (0, 0))
    turns.is_empty(0)
    assert turns.deal(1) == {}


def test_who_read_elsewhere_looks_again_after_a_while_or_so_many_messages() -> None:
    clock = ManualClock()
    turns = turns_of((1000, 0), (0, 0), (0, 0), clock=clock)
    assert turns.to_glance() == []  # all was heard just now
    clock.advance(LOOK_AFTER)
    turns.heard(0, 1000, 0)
    assert turns.to_glance() == [1, 2]
    assert turns.to_glance() == []
    clock.advance(FRESH * 1.5)
    turns.deal(LOOK_AFTER_MESSAGES - 1)
    assert turns.to_glance() == []
    turns.deal(1)
    assert turns.to_glance() == [0, 1, 2]


def test_who_has_not_been_heard_is_known() -> None:
    clock = ManualClock()
    turns = Turns(2, clock.monotonic)
    assert turns.unheard(clock.monotonic()) == [0, 1]
    turns.heard(1, 0, 0)
    assert turns.unheard(clock.monotonic()) == [0]
    clock.advance(1)
    assert turns.unheard(clock.monotonic()) == [0, 1]


def test_a_reader_that_acks_stays_for_a_while_and_leaves_for_quiet_messages_elsewhere() -> None:
    turns = turns_of((0, 5), (0, 3))
    assert [turns.deal(1, stay=0) for _ in range(STAYS)] == [{0: 1}] * STAYS
    assert turns.deal(1, stay=0) == {1: 1}
    assert turns.deal(1, stay=0) == {0: 1}
    turns.heard(1, 1, 3)
    assert turns.deal(1, stay=0) == {1: 1}


def test_nobody_stays_where_there_is_nothing() -> None:
    turns = turns_of((0, 0), (0, 3))
    assert turns.deal(1, stay=0) == {1: 1}
