"""The odds agree with a million drawn tenants, and the check notices odds that are wrong."""

from __future__ import annotations

import random

import pytest

from shardq.errors import ConfigError
from shardq.planner import simulation
from shardq.planner.simulation import dealt, drawn


@pytest.mark.parametrize(("n", "m", "noisy"), [(16, 2, 4), (64, 6, 20), (256, 4, 20)])
def test_a_million_tenants_agree(n: int, m: int, noisy: int) -> None:
    checks = drawn(n, m, noisy, seed=1)
    assert [each for each in checks if not each.close] == []
    assert sum(checks[1].seen) == 1_000_000
    assert sum(checks[0].seen) == 500_000


@pytest.mark.parametrize(("n", "m", "noisy"), [(1, 1, 1), (5, 5, 3), (4096, 8, 50), (3, 1, 0)])
def test_shapes_at_the_edge_agree(n: int, m: int, noisy: int) -> None:
    assert [each for each in drawn(n, m, noisy, tenants=20_000, seed=2) if not each.close] == []


@pytest.mark.runs_in("test-all")
def test_dealt_shards_agree(rng: random.Random) -> None:
    """Keys that differ in each run: correct odds fail this less than once in 10,000 runs."""
    for n, m in ((16, 2), (64, 4), (8, 8)):
        checks = dealt(n, m, tenants=20_000, seed=rng.randrange(2**32))
        assert [each for each in checks if not each.close] == []


def test_wrong_odds_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Odds of another shape, and a dealer that prefers the first stream, disagree."""
    monkeypatch.setattr(simulation, "Odds", lambda n, m: type("Odds", (), {"overlap": (0.75, 0.24, 0.01)}))
    monkeypatch.setattr(simulation, "clean_odds", lambda n, m, k: (0.155, 0.5, 0.345))
    assert [each.close for each in drawn(16, 2, 4)] == [False, False]
    monkeypatch.setattr(
        simulation, "shard", lambda key, n, m: (0, 1) if key.endswith("0") else random.Random(key).sample(range(n), m)
    )
    assert [each.close for each in dealt(16, 2, tenants=20_000)] == [False, False]


@pytest.mark.parametrize("tenants", [0, 1999, 10_000_001, 1e6])
def test_the_size_is_bounded(tenants: int) -> None:
    with pytest.raises(ConfigError, match="tenants must be an int from 2,000 to"):
        drawn(16, 2, 4, tenants=tenants)
