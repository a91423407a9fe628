"""How windows adapt: their bounds, and what they make of the links of the benchmark, a model without a clock."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from benchmarks.flow import CASES, SIZE, SPAN, STORING, Case, Link
from shardq.flow import Fixed, Gradient, Limit, Vegas


def driven(limit: Limit, round_trip: float, seconds: float, now: float = 0.0) -> float:
    """The window is always full, and each ack takes *round_trip*; the time after that."""
    until = now + seconds
    while now < until:
        size = limit.size
        for at in range(size):
            limit.acked(round_trip, size, now + at * round_trip / size)
        now += round_trip
    return now


@pytest.mark.parametrize("made", [Vegas, Gradient])
def test_bounds_are_kept(made: type[Vegas | Gradient], rng: Random) -> None:
    limit = made(first=10, least=3, most=50)
    driven(limit, 0.01, 30)
    assert limit.size == 50
    for at in range(100):
        limit.timed_out(40.0 + at)
    assert limit.size == 3
    for at in range(2000):
        limit.acked(rng.choice([0.0, 1e-6, 0.01, 100.0]), rng.randrange(60), 200.0 + at)
        assert 3 <= limit.size <= 50


@pytest.mark.parametrize("made", [Vegas, Gradient])
def test_a_window_that_nobody_fills_does_not_grow(made: type[Vegas | Gradient]) -> None:
    limit = made(first=40)
    for at in range(1000):
        limit.acked(0.01, 2, at / 100)
    assert limit.size <= 40


def test_a_fixed_window_stays() -> None:
    limit = Fixed(7)
    driven(limit, 0.01, 1)
    limit.timed_out(5.0)
    assert limit.size == 7


def test_vegas_learns_that_the_way_has_become_longer() -> None:
    limit = Vegas(most=64)
    now = driven(limit, 0.01, 8)
    assert limit.size == 64
    now = driven(limit, 0.1, 4, now)
    assert limit.size < 60  # it looks queued at first
    driven(limit, 0.1, 30, now)
    assert limit.size == 64


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vegas_uses_a_link_and_lets_acks_wait_little(case: Case) -> None:
    link = Link(case, [Vegas() for _ in range(case.senders)], Random(1))
    link.run()
    assert sum(link.stored) * SIZE * 8 / SPAN >= 0.95 * case.bandwidth * (1 + case.then) / 2
    queued = 20 * case.senders  # messages; several senders take each other's queue for a longer way
    bound = case.round_trip * case.longer + STORING * 2 + queued * SIZE * 8 / (case.bandwidth * case.then)
    assert float(np.median(link.waits)) <= bound
    assert min(link.stored) >= 0.5 * max(link.stored)
    assert link.again == 0
