"""Away: which partitions are left out of reads, and when they are probed."""

from __future__ import annotations

from shardq.errors import BackendTimeout
from shardq.partitions.away import FIRST_RETRY, MAX_RETRY, Away
from shardq.partitions.turns import PartitionTurns
from shardq.testing.clock import ManualClock

FAILED = BackendTimeout("no answer")


def away_of(partitions: int) -> tuple[Away, PartitionTurns, ManualClock]:
    clock = ManualClock()
    turns = PartitionTurns(partitions, clock.monotonic)
    for number in range(partitions):
        turns.heard(number, 10, 0)
    return Away(turns, partitions, clock.monotonic), turns, clock


def test_a_partition_is_left_out_until_the_last_of_its_late_calls_ends() -> None:
    away, turns, _ = away_of(3)
    away.late(1)
    away.late(1)
    assert turns.deal(30).keys() == {0, 2}
    late: bool = away.is_late
    assert late
    away.ended(1, [])
    assert away.numbers == {1}
    away.ended(1, [])
    assert away.numbers == frozenset()
    late = away.is_late
    assert not late
    assert turns.deal(30).keys() == {0, 1, 2}


def test_one_that_failed_is_probed_later_each_time_and_by_one_reader() -> None:
    away, turns, clock = away_of(2)
    away.heard(0, FAILED)
    pause = FIRST_RETRY
    for _ in range(8):
        assert list(turns.deal(1)) == [1]
        assert away.to_probe() == []
        clock.advance(pause * 1.01)
        assert (away.to_probe(), away.to_probe()) == ([0], [])
        away.heard(0, FAILED)
        pause = min(MAX_RETRY, 2 * pause)
    clock.advance(MAX_RETRY * 1.01)
    assert away.to_probe() == [0]
    away.heard(0, [])
    assert away.numbers == frozenset()
    away.heard(0, FAILED)
    clock.advance(FIRST_RETRY * 1.01)
    assert away.to_probe() == [0]  # after it has answered, it begins anew


def test_where_all_are_away_none_is_left_out() -> None:
    away, turns, _ = away_of(2)
    away.late(0)
    away.heard(1, FAILED)
    assert away.numbers == {0, 1}
    assert turns.out == frozenset()
    assert away.failure is None
    away.ended(0, FAILED)
    assert away.failure is FAILED


def test_nothing_is_looked_for_where_nobody_answers() -> None:
    away, turns, clock = away_of(3)
    away.late(2)
    clock.advance(1)
    assert turns.to_glance() == [0, 1]
    assert list(turns.deal(1, stay=2)) != [2]
