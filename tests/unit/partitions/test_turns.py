"""Turns: what a read is dealt, by what is known of the partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from shardq.partitions.turns import (
    BESIDE_QUIET,
    FRESH_SECONDS,
    GLANCES_A_MESSAGE,
    GLANCES_A_SECOND,
    LEVEL,
    LOOK_AFTER,
    LOOK_AFTER_MESSAGES,
    LOOK_AFTER_WORK,
    MAX_BEHIND,
    MAX_IN_A_ROW,
    SURE,
    TICKS,
    DealtRead,
    PartitionTurns,
)
from shardq.testing.clock import ManualClock


def turns_of(*told: tuple[int, int], clock: ManualClock | None = None, beside: int = 0) -> PartitionTurns:
    """Turns that have heard of each partition how many quiet messages and turns it has."""
    turns = PartitionTurns(len(told), (clock or ManualClock()).monotonic, beside=beside)
    for at, (quiet, waiting) in enumerate(told):
        turns.heard(at, quiet, waiting)
    return turns


def counts(dealt: Mapping[int, DealtRead]) -> dict[int, int]:
    """How many messages are asked of which partition."""
    return {at: each.messages for at, each in dealt.items()}


def score(flight: int, seconds: float) -> int:
    """The score of one that has so many in flight, and has received so many seconds of service."""
    return flight * LEVEL + round(seconds * TICKS)


def test_nothing_is_dealt_where_nothing_is_known() -> None:
    assert counts(turns_of((0, 0), (0, 0)).deal(10)) == {}
    assert counts(PartitionTurns(3, ManualClock().monotonic).deal(1)) == {}


@pytest.mark.parametrize("batch", [1, 5, 8])
def test_one_of_eight_is_for_those_who_wait_for_a_turn_wherever_they_are(batch: int) -> None:
    turns = turns_of((100, 0), (100, 5), (100, 0))
    due = Counter[int]()
    for _ in range(10 * BESIDE_QUIET):
        for at, dealt in turns.deal(batch).items():
            due[at] += dealt.due
            turns.answered(at, dealt)
            turns.heard(at, 100, 5 if at == 1 else 0)
    assert due.total() == due[1] == 10 * BESIDE_QUIET * batch  # in eighths of a message


def test_each_place_among_eight_begins_at_another_message() -> None:
    first = [[*turns_of((100, 0), (0, 5), beside=beside).deal(1)] for beside in range(BESIDE_QUIET)]
    assert first.count([1]) == 1


def test_what_is_asked_for_quiet_ones_does_not_change_whose_turn_is_next() -> None:
    """Three floods wait in one partition, one in the other, which has many quiet ones: each has its turn as often."""
    turns, given, received = turns_of((5, 3), (500, 1)), Counter[int](), [0.0, 0.0]
    for _ in range(12 * BESIDE_QUIET):
        for at, dealt in turns.deal(BESIDE_QUIET).items():
            given[at] += dealt.turns
            received[at] += dealt.turns / (3, 1)[at]
            turns.answered(at, dealt)
            turns.heard(at, (5, 500)[at], (3, 1)[at], score(0, received[at]))
    assert given[0] == 3 * given[1]


def test_quiet_messages_are_read_in_proportion() -> None:
    turns = turns_of((300, 0), (100, 0))
    dealt = Counter[int]()
    for _ in range(40):
        (at,) = turns.deal(1)
        dealt[at] += 1
        turns.answered(at, DealtRead(1, 1))
        turns.heard(0, 300, 0)
        turns.heard(1, 100, 0)
    assert dealt == {0: 30, 1: 10}


def test_where_nothing_is_known_of_quiet_ones_each_partition_counts_for_itself() -> None:
    turns = turns_of((0, 3), (0, 3))
    assert all(each.due == each.messages for each in turns.deal(6).values())


def test_who_wants_more_than_is_known_asks_for_the_rest_wherever_something_is() -> None:
    turns = turns_of((2, 0), (3, 0), (0, 0))
    dealt = counts(turns.deal(15))
    assert dealt == {0: 7, 1: 8}
    assert sum(counts(turns.deal(15, among=[1])).values()) == 3


def test_who_wants_much_of_what_nobody_knows_asks_all() -> None:
    turns = PartitionTurns(3, ManualClock().monotonic)
    assert counts(turns.deal(2)) == {}
    assert counts(turns.deal(7)) == {0: 3, 1: 2, 2: 2}


def test_what_is_known_may_be_old_and_a_read_of_it_finds_out() -> None:
    turns = turns_of((2, 0), (3, 0))
    turns.deal(5)
    assert counts(turns.deal(1)) in ({0: 1}, {1: 1})  # what is known is old by now: the read finds out


def test_a_batch_is_dealt_by_weight() -> None:
    """Twice as many tenants wait in one partition, so it gives twice as much."""
    dealt = counts(turns_of((0, 20), (0, 10)).deal(30))
    assert abs(dealt[0] - 20) <= 1
    assert dealt[0] + dealt[1] == 30


def test_who_has_fewest_in_flight_comes_first_then_who_has_received_least() -> None:
    turns = turns_of((0, 1), (0, 1), (0, 1))
    for told, dealt in [
        ([score(1, 0), score(0, 50), score(0, 60)], 1),
        ([score(1, 9), score(1, 9), score(1, 8)], 2),
        ([score(2, 0), score(3, 0), score(2, 1)], 0),
    ]:
        for at, each in enumerate(told):
            turns.heard(at, 0, 1, each)
        assert counts(turns.deal(1)) == {dealt: 1}
        turns.answered(dealt, DealtRead(1, 1))


def test_reads_that_are_not_answered_yet_count_as_in_flight() -> None:
    turns = turns_of((0, 1), (0, 1), (0, 1))
    for at in range(3):
        turns.heard(at, 0, 1, score(0, 3 - at))
    assert [counts(turns.deal(1)) for _ in range(6)] == [{2: 1}, {1: 1}, {0: 1}, {2: 1}, {1: 1}, {0: 1}]


@pytest.mark.parametrize("handlers", [3, 4, 16])
@pytest.mark.parametrize("works", [(0.5, 0.5, 0.5), (50.0, 0.5, 0.5), (5.0, 50.0, 0.5)])
def test_tenants_of_several_partitions_get_the_same_time(works: tuple[float, ...], handlers: int) -> None:
    """One tenant in each partition, which tells its score with each answer: no lead is more than two of their jobs."""
    turns, spent, flight = turns_of((0, 1), (0, 1), (0, 1)), [0.0] * 3, [0] * 3
    ends: list[tuple[float, int]] = []
    now, leads = 0.0, Counter[tuple[int, int]]()
    for _ in range(1000):
        while len(ends) < handlers:
            (at,) = turns.deal(1)
            flight[at] += 1
            turns.answered(at, DealtRead(1, 1))
            turns.heard(at, 0, 1, score(flight[at], spent[at]))
            ends.append((now + works[at], at))
        ends.sort(reverse=True)
        now, at = ends.pop()
        flight[at] -= 1
        spent[at] += works[at]
        turns.heard(at, 0, 1, score(flight[at], spent[at]))
        for one in range(3):
            for other in range(3):
                leads[one, other] = max(leads[one, other], spent[one] - spent[other])  # type: ignore[assignment]
    share = handlers / 3
    for (one, other), lead in leads.items():
        assert lead <= (1 + share) * max(works[one], works[other]), (one, other)


@pytest.mark.parametrize("levels", [0.4, 1.0, 7.3])
@pytest.mark.parametrize("flight", [0, 1])
def test_a_virtual_time_of_more_than_a_level_counts_for_none_in_flight(levels: float, flight: int) -> None:
    """Many who serve one tenant for months bring it there."""
    virtual = round(levels * LEVEL)
    turns = PartitionTurns(2, ManualClock().monotonic)
    dealt = Counter[int]()
    for _ in range(20):
        turns.heard(0, 0, 1, score(flight, dealt[0]) + virtual, virtual)
        turns.heard(1, 0, 1, score(flight, dealt[1]), 0)
        (at,) = turns.deal(1)
        turns.answered(at, DealtRead(1, 1))
        dealt[at] += 1
    assert dealt == {0: 10, 1: 10}


def test_a_partition_that_comes_anew_has_no_claim_on_what_the_others_were_served() -> None:
    turns = turns_of((0, 1), (0, 0))
    turns.heard(0, 0, 1, score(0, 100))
    turns.heard(1, 0, 1, score(0, 0))
    told, dealt = [100.0, 0.0], Counter[int]()
    for _ in range(20):
        (at,) = turns.deal(1)
        turns.answered(at, DealtRead(1, 1))
        dealt[at] += 1
        told[at] += 1
        turns.heard(at, 0, 1, score(0, told[at]))
    assert abs(dealt[0] - dealt[1]) <= 2


def test_who_is_ahead_of_the_virtual_time_of_a_partition_stays_so() -> None:
    turns = PartitionTurns(2, ManualClock().monotonic)
    turns.heard(0, 0, 1, score(0, 1000), virtual=1000 * TICKS)
    turns.heard(1, 0, 1, score(0, 3), virtual=0)
    assert counts(turns.deal(1)) == {0: 1}
    turns.answered(0, DealtRead(1, 1))
    turns.heard(0, 0, 1, score(0, 1002), virtual=1002 * TICKS)
    assert counts(turns.deal(1)) == {0: 1}
    turns.answered(0, DealtRead(1, 1))
    turns.heard(0, 0, 1, score(0, 1004), virtual=1004 * TICKS)
    assert counts(turns.deal(1)) == {1: 1}


def test_no_partition_has_a_claim_without_bound() -> None:
    turns = turns_of((0, 1), (0, 1))
    told = [0.0, MAX_BEHIND + 100]
    for at in range(2):
        turns.heard(at, 0, 1, score(0, told[at]))
    while (dealt := counts(turns.deal(1))) == {0: 1}:
        turns.answered(0, DealtRead(1, 1))
        told[0] += 10
        turns.heard(0, 0, 1, score(0, told[0]))
    assert dealt == {1: 1}
    assert MAX_BEHIND <= told[0] <= MAX_BEHIND + 20


def test_a_partition_that_was_away_keeps_what_it_is_ahead() -> None:
    turns = turns_of((0, 1), (0, 1))
    turns.heard(1, 0, 1, score(0, 50))
    turns.heard(1, 0, 0)
    turns.heard(1, 0, 1, score(0, 50))
    assert counts(turns.deal(1)) == {0: 1}


def test_what_did_not_come_is_not_asked_for() -> None:
    turns = turns_of((0, 1), (0, 1))
    dealt = counts(turns.deal(10))
    for at, count in dealt.items():
        turns.answered(at, DealtRead(count + 5, count + 5))
    assert counts(turns.deal(10)) == dealt


def test_a_read_that_found_nothing_forgets_what_was_known() -> None:
    turns = turns_of((5, 5), (0, 0))
    turns.is_empty(0)
    assert counts(turns.deal(1)) == {}


def test_who_read_elsewhere_looks_again_after_a_while_or_so_many_messages() -> None:
    clock = ManualClock()
    turns = turns_of((1000, 0), (0, 0), (0, 0), clock=clock)
    assert turns.to_glance() == []  # all was heard just now
    clock.advance(LOOK_AFTER)
    turns.heard(0, 1000, 0)
    assert turns.to_glance() == [1, 2]
    assert turns.to_glance() == []
    clock.advance(FRESH_SECONDS * 1.5)
    turns.deal(LOOK_AFTER_MESSAGES - 1)
    assert turns.to_glance() == []
    turns.deal(1)
    assert turns.to_glance() == [0, 1, 2]


def test_who_has_settled_long_work_looks_at_its_partition() -> None:
    turns = turns_of((0, 5), (0, 5))
    turns.to_glance()
    turns.settled(1, FRESH_SECONDS / 2)
    assert turns.to_glance() == []
    turns.settled(1, LOOK_AFTER_WORK / 2)
    assert turns.to_glance() == []
    turns.settled(1, LOOK_AFTER_WORK / 2)
    assert turns.to_glance() == [1]
    assert turns.to_glance() == []


def test_quiet_messages_are_looked_for_again_where_they_would_bring_more_of_who_is_ahead() -> None:
    clock = ManualClock()
    turns = turns_of((0, 1), (1, 1), clock=clock)
    turns.to_glance()
    turns.heard(1, 1, 1, score(0, 5))
    assert turns.to_glance() == [], "it was heard just now"
    clock.advance(2 * SURE)
    assert turns.to_glance() == [1]
    turns.heard(1, 1, 1, score(0, 0))
    clock.advance(2 * SURE)
    assert turns.to_glance() == [], "nobody there is ahead"


@pytest.mark.parametrize("took", [0.001, 0.010, 0.050, 0.5])
def test_a_job_takes_few_looks_however_many_partitions_there_are(took: float) -> None:
    """Each is looked at after as many messages as there are partitions, and those before that come next."""
    clock, partitions, rounds = ManualClock(), 30, 90
    turns = turns_of(*[(0, 5)] * partitions, clock=clock)
    heard, looks = dict.fromkeys(range(partitions), 0), 0
    for at in range(rounds):
        looked = turns.to_glance()
        looks += len(looked)
        if looked and at:
            following = min(range(partitions), key=turns._order)
            assert following in looked or turns._turns[following].heard_at > clock.monotonic() - FRESH_SECONDS
        for each in looked:
            turns.heard(each, 0, 5, score(0, at % 7))
        (number,) = turns.deal(1)
        turns.answered(number, DealtRead(1, 1))
        turns.heard(number, 0, 5, score(1, at % 7))
        heard |= dict.fromkeys([*looked, number], at)
        assert at - min(heard.values()) <= partitions + LOOK_AFTER_MESSAGES
        clock.advance(took)
        turns.settled(number, took)
    assert looks <= partitions + rounds * (GLANCES_A_MESSAGE + GLANCES_A_SECOND * took)


def test_few_partitions_are_all_looked_at_before_long_work() -> None:
    clock = ManualClock()
    turns = turns_of((0, 5), (0, 5), (0, 5), (0, 0), clock=clock)
    for _ in range(20):
        clock.advance(LOOK_AFTER_WORK)
        assert turns.to_glance() == [0, 1, 2, 3]
        for at in range(4):
            turns.heard(at, 0, 5 * (at < 3))
        (number,) = turns.deal(1)
        turns.answered(number, DealtRead(1, 1))
        turns.settled(number, LOOK_AFTER_WORK)


def test_what_is_settled_is_in_flight_no_more_until_a_read_says_what_is_true() -> None:
    turns = turns_of((0, 1), (0, 1))
    turns.heard(0, 0, 1, score(2, 0))
    turns.heard(1, 0, 1, score(1, 5))
    turns.settled(0, 0.0)
    assert counts(turns.deal(1)) == {0: 1}, "as many are in flight in both, and its first has received less"
    turns.answered(0, DealtRead(1, 1))
    turns.heard(0, 0, 1, score(2, 0))
    assert counts(turns.deal(1)) == {1: 1}, "it was another's that was settled"
    for _ in range(9):
        turns.settled(0, 0.0)
    turns.settled(7, 0.0)
    assert turns._turns[0].level == 0


@pytest.mark.parametrize("settled", [1, 3, 20])
def test_a_wrong_guess_of_what_is_in_flight_starves_nobody(settled: int) -> None:
    """In each of two partitions one waits. Others' messages come and go in the first, and count as the one's there.

    So it may get one message before its turn, whose read says what is true.
    """
    turns, flight, dealt = turns_of((0, 1), (0, 1)), [1, 1], [0, 0]
    for _ in range(200):
        for at in range(2):
            turns.heard(at, 0, 1, score(flight[at], dealt[at]))
        for _ in range(settled):
            turns.settled(0, 0.0)
        for _ in range(4):
            (at,) = turns.deal(1)
            turns.answered(at, DealtRead(1, 1))
            dealt[at], flight[at] = dealt[at] + 1, flight[at] + 1
            turns.heard(at, 0, 1, score(flight[at], dealt[at]))
            assert abs(dealt[0] - dealt[1]) <= 2
        flight = [1, 1]


def test_who_has_not_been_heard_is_known() -> None:
    clock = ManualClock()
    turns = PartitionTurns(2, clock.monotonic)
    assert turns.unheard(clock.monotonic()) == [0, 1]
    turns.heard(1, 0, 0)
    assert turns.unheard(clock.monotonic()) == [0]
    clock.advance(1)
    assert turns.unheard(clock.monotonic()) == [0, 1]


def test_a_reader_that_acks_stays_for_a_while_and_leaves_for_quiet_messages_elsewhere() -> None:
    turns = turns_of((0, 5), (0, 3))
    assert [counts(turns.deal(1, stay=0)) for _ in range(MAX_IN_A_ROW)] == [{0: 1}] * MAX_IN_A_ROW
    assert counts(turns.deal(1, stay=0)) == {1: 1}
    assert counts(turns.deal(1, stay=0)) == {0: 1}
    turns.heard(1, 1, 3)
    assert counts(turns.deal(1, stay=0)) == {1: 1}


def test_a_reader_that_acks_leaves_who_is_ahead() -> None:
    turns = turns_of((0, 1), (0, 1))
    assert counts(turns.deal(1, stay=0)) == {0: 1}
    turns.answered(0, DealtRead(1, 1))
    turns.heard(0, 0, 1, score(0, 0.5))
    assert counts(turns.deal(1, stay=0)) == {1: 1}


def test_nobody_stays_where_there_is_nothing() -> None:
    turns = turns_of((0, 0), (0, 3))
    assert counts(turns.deal(1, stay=0)) == {1: 1}
