"""Checks of the odds by random drawing. It needs numpy (extra `plan`).

Dealing a million real shards would take too long in Python, so there are two checks:

- `drawn`: shards are uniform random sets of M of N streams (Floyd's algorithm, CACM 30(9), 1987, for all tenants at
  once). That checks the formulas, given that dealing is uniform.
- `dealt`: shards come from `shardq.sharding.shard`, for fewer tenants. That checks that dealing is uniform.

Overlaps are counted in pairs of tenants. Each tenant is in one pair only, so the pairs are independent, as a chi-square
test requires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, TypeAlias

from shardq.extras import extra

with extra("plan", "a check"):
    import numpy as np
    from numpy.typing import NDArray

from shardq.planner.odds import check_count, clean_odds
from shardq.sharding import Odds, check_width, shard

MIN_TENANTS: Final = 2_000
MAX_DRAWN: Final = 10_000_000
MAX_DEALT: Final = 1_000_000
MAX_NOISY: Final = 10_000
"""Bounds of a simulation: tenants at least, random tenants at most, dealt ones at most, noisy ones at most."""

DEALT_AT_ONCE: Final = 100_000
ROUND: Final = 100
"""How many tenants are drawn at once; how many quiet tenants share one drawing of the noisy ones (a round)."""

Shards: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Closeness:
    """Counts and the expected ones; `error` is their distance in standard deviations of a normal distribution."""

    name: str
    seen: tuple[int, ...]
    expected: tuple[float, ...]
    error: float

    @property
    def close(self) -> bool:
        """Whether the counts agree with the odds. Correct odds fail this less than once in 10,000 times."""
        return self.error < 4


def drawn(
    streams: int, streams_per_shard: int, noisy: int, *, tenants: int = 1_000_000, seed: int = 0
) -> list[Closeness]:
    """Check the odds of overlap and of clean streams on `tenants` tenants with random shards; takes a second or two.

    `tenants`: 2,000 to 10,000,000. `noisy`: 0 to 10,000. ConfigError for other numbers.
    """
    check_count("tenants", tenants, MIN_TENANTS, MAX_DRAWN)
    check_count("noisy", noisy, 0, MAX_NOISY)
    width = check_width(streams, streams_per_shard)
    dice = np.random.default_rng(seed)
    shared = np.zeros(width + 1, dtype=np.int64)
    for begin in range(0, tenants, DEALT_AT_ONCE):
        shared += _overlaps(drawn_shards(dice, min(DEALT_AT_ONCE, tenants - begin) // 2 * 2, streams, width), streams)
    together = min(tenants // ROUND, max(1, DEALT_AT_ONCE // max(ROUND, noisy)))
    rounds = np.concatenate(
        [_clean(dice, streams, width, noisy, together) for _ in range(0, tenants // ROUND, together)]
    )
    return [
        _fit(f"overlap of {tenants // 2:,} random pairs", shared, Odds(streams, width).overlap),
        _clean_fit(rounds, streams, width, noisy),
    ]


def dealt(streams: int, streams_per_shard: int, *, tenants: int = 100_000, seed: int = 0) -> list[Closeness]:
    """Check on dealt shards the odds of overlap, and that each stream is in as many shards as any other.

    `tenants`: 2,000 to 1,000,000; about 15 µs each for 64 streams, 30 for 256. ConfigError for other numbers.
    """
    check_count("tenants", tenants, MIN_TENANTS, MAX_DEALT)
    width = check_width(streams, streams_per_shard)
    keys = (f"plan-{seed}-{number}" for number in range(tenants // 2 * 2))
    shards = np.array([shard(key, streams, width) for key in keys], dtype=np.int64)
    used = np.bincount(shards.ravel(), minlength=streams)
    # Drawing without replacement spreads more evenly than chi-square assumes.
    scale = (streams - 1) / (streams - width) if width < streams else 1.0
    return [
        _fit(f"overlap of {tenants // 2:,} dealt pairs", _overlaps(shards, streams), Odds(streams, width).overlap),
        _fit(f"use of {streams:,} streams by {len(shards):,} shards", used, [1 / streams] * streams, scale),
    ]


def drawn_shards(dice: np.random.Generator, tenants: int, streams: int, width: int) -> Shards:
    """Random shards, one per row; each set of streams is as likely as any other."""
    columns = np.empty((width, tenants), dtype=np.int64)  # rows are short, columns long
    for found, last in zip(columns, range(streams - width, streams), strict=True):
        found[:] = dice.integers(0, last + 1, tenants)
        taken = np.zeros(tenants, dtype=bool)
        for earlier in columns[: last - streams + width]:
            taken |= earlier == found
        found[taken] = last
    return columns.T


def _overlaps(shards: Shards, streams: int) -> Shards:
    """How many pairs of adjacent shards share exactly j streams, for j = 0 to M."""
    left, right = shards[::2], shards[1::2]
    shared = sum((left[:, [at]] == right).any(axis=1).astype(np.int64) for at in range(shards.shape[1]))
    return np.bincount(shared, minlength=shards.shape[1] + 1)


def _clean(dice: np.random.Generator, streams: int, width: int, noisy: int, rounds: int) -> Shards:
    """For each round, how many of its `ROUND` quiet tenants have c clean streams, for c = 0 to M.

    Each round has a drawing of the noisy tenants of its own.
    """
    covered = np.zeros((rounds, streams), dtype=bool)
    covered[np.repeat(np.arange(rounds), noisy)[:, None], drawn_shards(dice, rounds * noisy, streams, width)] = True
    number = np.repeat(np.arange(rounds), ROUND)
    clean = width - covered[number[:, None], drawn_shards(dice, rounds * ROUND, streams, width)].sum(axis=1)
    cells = np.bincount(number * (width + 1) + clean, minlength=rounds * (width + 1))
    return cells.reshape(rounds, width + 1)


def _clean_fit(rounds: Shards, streams: int, width: int, noisy: int) -> Closeness:
    """Compare with `clean_odds`. Only rounds are independent, because the tenants of one share their noisy tenants."""
    odds = clean_odds(streams, width, noisy)
    quiet = len(rounds) * ROUND
    spread = float(rounds[:, 0].std()) / ROUND / sqrt(len(rounds))
    least = sqrt(max(odds[0] * (1 - odds[0]), 1 / quiet) / quiet)  # if no round has a tenant without a clean stream
    error = abs(float(rounds[:, 0].mean()) / ROUND - odds[0]) / max(spread, least)
    name = f"clean streams of {quiet:,} random tenants"
    return Closeness(name, tuple(rounds.sum(axis=0).tolist()), tuple(share * quiet for share in odds), error)


def _fit(name: str, counts: Shards, odds: Sequence[float], scale: float = 1.0) -> Closeness:
    """A chi-square test. The least likely cells are merged until 5 are expected in them."""
    expected = np.array(odds) * counts.sum()
    order = np.argsort(expected)
    rare = int(np.searchsorted(np.cumsum(expected[order]), 5))
    starts = [0, *range(rare + 1, len(order))]
    wanted = np.add.reduceat(expected[order], starts)
    found = np.add.reduceat(counts[order].astype(float), starts)
    statistic = scale * float(((found - wanted) ** 2 / wanted).sum())
    error = _deviations(statistic, len(wanted) - 1)
    return Closeness(name, tuple(counts.tolist()), tuple(expected.tolist()), error)


def _deviations(statistic: float, freedom: int) -> float:
    """A chi-square statistic in standard deviations (Wilson & Hilferty, PNAS 17(12), 1931); 0 for one cell only."""
    if freedom < 1:
        return 0.0
    part = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - part)) / sqrt(part))
