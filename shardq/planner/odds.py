"""What is left of a shard when noisy tenants flood theirs, or when streams are lost. Exact, no simulation.

`shardq.sharding.Odds` says how two shards overlap; this says how one shard fares against many. Let c of a shard's M
streams be clean. One more noisy shard covers exactly j of them with the odds of drawing j of c when M of N are drawn
(hypergeometric), so the number of clean streams is a Markov chain, and k noisy tenants are the k-th power of its
matrix. All terms are positive: nothing cancels, however small the odds (`Odds.blocked` gets the same from inclusion
and exclusion, in whole numbers).
"""

from __future__ import annotations

from math import comb, fsum
from typing import Final, TypeAlias

from shardq.errors import ConfigError
from shardq.keys import shown
from shardq.sharding import check_width

MAX_TENANTS: Final = 1_000_000_000
"""The most tenants that a plan is made for."""

_Matrix: TypeAlias = list[list[float]]


def check_count(name: str, value: int, low: int, high: int = MAX_TENANTS) -> int:
    """*value* if it is an int from *low* to *high*; else ConfigError."""
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} must be an int from {low:,} to {high:,}, not {shown(value)}")
    return value


def clean_odds(streams: int, streams_per_shard: int, noisy: int) -> tuple[float, ...]:
    """The odds that exactly c streams of a shard are free of `noisy` other shards, for c = 0 to M.

    The first is the share of tenants that have no clean stream left. ConfigError for invalid numbers.

    >>> [round(odds, 3) for odds in clean_odds(64, 4, noisy=20)]
    [0.271, 0.425, 0.24, 0.058, 0.005]
    """
    width = check_width(streams, streams_per_shard)
    check_count("noisy", noisy, 0)
    return tuple(_power(_one_more(streams, width), noisy)[width])


def lost_odds(streams: int, streams_per_shard: int, lost: int) -> tuple[float, ...]:
    """The odds that exactly j streams of a shard are among `lost` given ones, for j = 0 to M (hypergeometric).

    >>> [round(odds, 4) for odds in lost_odds(64, 4, lost=2)]
    [0.878, 0.119, 0.003, 0.0, 0.0]
    """
    width = check_width(streams, streams_per_shard)
    check_count("lost", lost, 0, streams)
    return tuple(_drawn(streams, width, lost, j) for j in range(width + 1))


def busy(streams: int, streams_per_shard: int, noisy: int) -> float:
    """How many streams `noisy` shards cover together, on average: the turns that a message waits in a clean stream."""
    width = check_width(streams, streams_per_shard)
    check_count("noisy", noisy, 0)
    return streams * (1 - (1 - width / streams) ** noisy)


def _drawn(streams: int, width: int, marked: int, j: int) -> float:
    """The odds that `width` streams drawn of `streams` hold exactly j of `marked` ones."""
    return comb(marked, j) * comb(streams - marked, width - j) / comb(streams, width)


def _one_more(streams: int, width: int) -> _Matrix:
    """Row c, column d: the odds that one more noisy shard leaves d of c clean streams."""
    return [
        [_drawn(streams, width, clean, clean - left) if left <= clean else 0.0 for left in range(width + 1)]
        for clean in range(width + 1)
    ]


def _power(base: _Matrix, exponent: int) -> _Matrix:
    """By squaring."""
    size = len(base)
    power = [[float(row == column) for column in range(size)] for row in range(size)]
    while exponent:
        if exponent & 1:
            power = _times(power, base)
        base = _times(base, base)
        exponent >>= 1
    return power


def _times(left: _Matrix, right: _Matrix) -> _Matrix:
    """The product of two lower triangular matrices."""
    size = len(left)
    return [
        [
            fsum(left[row][at] * right[at][column] for at in range(column, row + 1)) if column <= row else 0.0
            for column in range(size)
        ]
        for row in range(size)
    ]
