"""The odds beside brute force: every shard there is, every flood there could be."""

from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import comb, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ConfigError
from shardq.planner import busy, clean_odds, lost_odds
from shardq.planner.odds import MAX_TENANTS
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


def chain(n: int, m: int, noisy: int) -> list[Fraction]:
    """The odds as a Markov chain has them: one more flood covers j of c clean streams (hypergeometric)."""
    odds = [Fraction(0)] * m + [Fraction(1)]
    for _ in range(noisy):
        odds = [
            sum((odds[c] * comb(c, c - left) * comb(n - c, m - c + left) for c in range(left, m + 1)), Fraction(0))
            / comb(n, m)
            for left in range(m + 1)
        ]
    return odds


@given(st.integers(1, 200), st.integers(1, 10), st.integers(0, 30))
def test_the_odds_are_those_of_a_markov_chain_to_the_last_digit(n: int, m: int, noisy: int) -> None:
    m = min(n, m)
    odds = clean_odds(n, m, noisy)
    assert odds == tuple(float(each) for each in chain(n, m, noisy))
    assert isclose(odds[0], Odds(n, m).blocked(noisy), rel_tol=1e-15)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("m", "noisy"), [(512, 20), (512, MAX_TENANTS), (1000, 3), (4096, 2), (2048, 1)])
def test_wide_shards_take_seconds_at_most(m: int, noisy: int) -> None:
    began = time.process_time()
    odds = clean_odds(4096, m, noisy)
    assert time.process_time() - began < 20  # a product of two matrices of 512 columns took as long
    assert sum(odds) == pytest.approx(1, abs=1e-12)
    mean = m * (1 - m / 4096) ** noisy
    assert sum(clean * share for clean, share in enumerate(odds)) == pytest.approx(mean, rel=1e-9, abs=1e-300)


def test_very_small_odds_do_not_vanish() -> None:
    """Nothing cancels: one noisy tenant blocks 1 in C(N, M), to all digits."""
    assert clean_odds(4096, 16, 1)[0] == pytest.approx(Odds(4096, 16).full, rel=1e-12, abs=0)


def test_a_billion_noisy_tenants_leave_nothing() -> None:
    """Powers are taken by squaring, so large numbers cost little."""
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


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(0, MAX_TENANTS))
def test_the_streams_that_are_busy_are_counted_to_the_last_digits(n: int, m: int, noisy: int) -> None:
    m = min(n, m)
    few = min(noisy, 1000)
    assert isclose(busy(n, m, few), n * (1 - Fraction(n - m, n) ** few), rel_tol=1e-12)
    assert 0 <= busy(n, m, noisy) <= n
