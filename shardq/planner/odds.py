"""What is left of a shard when noisy tenants flood theirs, or when streams are lost. Exact, no simulation.

`shardq.sharding.Odds` says how two shards overlap; this says how one shard fares against many. That k shards all miss j
given streams has the odds (C(N-j, M) / C(N, M)) ^ k. By inclusion and exclusion, exactly c of a shard's M streams are
clean with C(M, c) times the (M-c)-th difference of these, from j = c on. Differences cancel, so they are taken of whole
numbers with so many bits that the odds are right to the last digit of a float, however small they are. That takes
M * M / 2 subtractions; powers of the Markov chain of clean streams, which give the same, take M ^ 3 * log k steps.
"""

from __future__ import annotations

from itertools import pairwise
from math import comb, expm1, log1p
from typing import Final

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.sharding import check_width

MAX_TENANTS: Final = 1_000_000_000
"""The most tenants that a plan is made for."""

_LEAST_BITS: Final = 1150
"""Below the binary point of odds that are to be right as a float: the least is 2^-1074, and it has 53 digits."""


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
    bits = _LEAST_BITS + 2 * width  # each difference may double an error, and is multiplied by up to 2^M
    row = _missed(streams, width, noisy, bits)
    odds = [0.0] * (width + 1)
    for clean in range(width, -1, -1):  # the last one is the difference of order M - c at c
        odds[clean] = max(0, row[-1]) * comb(width, clean) / (1 << bits)
        row = [here - after for here, after in pairwise(row)]
    return tuple(odds)


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
    if width == streams:
        return float(streams if noisy else 0)
    return -streams * expm1(noisy * log1p(-width / streams))


def _drawn(streams: int, width: int, marked: int, j: int) -> float:
    """The odds that `width` streams drawn of `streams` hold exactly j of `marked` ones."""
    if j > marked:
        return 0.0
    return comb(marked, j) * comb(streams - marked, width - j) / comb(streams, width)


def _missed(streams: int, width: int, noisy: int, bits: int) -> list[int]:
    """For j from 0 to the width: the odds that `noisy` shards all miss j given streams, as multiples of 2^-bits."""
    guard = noisy.bit_length() + 8  # each of the power's multiplications loses less than a digit
    whole = ways = comb(streams, width)
    found = []
    for j in range(width + 1):
        found.append(_power((ways << bits + guard) // whole, noisy, bits + guard) >> guard)
        ways = ways * (streams - j - width) // (streams - j) if streams - j > width else 0
    return found


def _power(base: int, exponent: int, bits: int) -> int:
    """By squaring, of a multiple of 2^-bits."""
    power = 1 << bits
    while exponent:
        if exponent & 1:
            power = power * base >> bits
        base = base * base >> bits
        exponent >>= 1
    return power
