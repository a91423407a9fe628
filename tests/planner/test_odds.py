"""The odds beside brute force: every shard there is, every flood there could be."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ConfigError
from shardq.planner import busy, clean_odds, lost_odds
from shardq.sharding import Odds

SMALL = [(n, m) for n in range(1, 7) for m in range(1, n + 1)]


def counted(cases: list[int], width: int) -> list[float]:
    """How often each number from 0 to *width* is among *cases*, as shares."""
    counts = Counter(cases)
    return [float(Fraction(counts[number], len(cases))) for number in range(width + 1)]


@pytest.mark.parametrize(("n", "m"), SMALL)
@pytest.mark.parametrize("noisy", [0, 1, 2])
def test_clean_streams_are_as_in_all_cases(n: int, m: int, noisy: int) -> None:
    """The odds are the shares among all ways in which the noisy tenants can be dealt shards."""
    shards = [frozenset(each) for each in combinations(range(n), m)]
    floods = [frozenset().union(*each) for each in product(shards, repeat=noisy)]
    assert clean_odds(n, m, noisy) == pytest.approx(counted([len(shards[0] - each) for each in floods], m))
    assert busy(n, m, noisy) == pytest.approx(sum(map(len, floods)) / len(floods))


@pytest.mark.parametrize(("n", "m"), SMALL)
def test_lost_streams_are_as_in_all_cases(n: int, m: int) -> None:
    """The odds are the shares among all shards, for every number of lost streams."""
    for lost in range(n + 1):
        cases = [len(set(each) & set(range(lost))) for each in combinations(range(n), m)]
        assert lost_odds(n, m, lost) == pytest.approx(counted(cases, m))


@given(st.integers(1, 200), st.integers(1, 10), st.integers(0, 60))
def test_no_clean_stream_as_by_whole_numbers(n: int, m: int, noisy: int) -> None:
    """Two formulas with nothing in common agree: the Markov chain, and inclusion and exclusion in whole numbers."""
    odds = clean_odds(n, m, noisy)
    assert isclose(sum(odds), 1, rel_tol=1e-9)
    assert isclose(odds[0], Odds(n, m).blocked(noisy), rel_tol=1e-9, abs_tol=1e-300)


def test_very_small_odds_do_not_vanish() -> None:
    """Nothing cancels: one noisy tenant blocks 1 in C(N, M), to all digits."""
    assert clean_odds(4096, 16, 1)[0] == pytest.approx(Odds(4096, 16).full, rel=1e-12, abs=0)


def test_a_billion_noisy_tenants_leave_nothing() -> None:
    """The chain is raised to its power by squaring, so large numbers cost little."""
    assert clean_odds(64, 4, 1_000_000_000)[0] == pytest.approx(1)


@pytest.mark.parametrize(("n", "m", "k"), [(0, 1, 1), (8, 0, 1), (8, 2, -1), (8, 2, True), (8, 2, 1.5), (8, 2, 10**10)])
def test_bad_numbers_are_refused(n: int, m: int, k: int) -> None:
    with pytest.raises(ConfigError):
        clean_odds(n, m, k)
    with pytest.raises(ConfigError):
        busy(n, m, k)


def test_no_more_streams_are_lost_than_there_are() -> None:
    with pytest.raises(ConfigError, match="lost must be an int from 0 to 8, not 9"):
        lost_odds(8, 2, 9)
