"""How much of a shard is left when noisy tenants flood their shards, or when streams are lost. Exact, no simulation.

`shardq.sharding.Odds` says how two shards overlap; this module says how one shard overlaps with many. The odds that k
shards all miss j given streams are (C(N-j, M) / C(N, M)) ^ k. By inclusion and exclusion, the odds that exactly c of a
shard's M streams are clean are C(M, c) times the (M-c)-th difference of these, from j = c on. Differences of floats
would lose digits. So they are computed with whole numbers, with enough bits that the result is right to the last digit
of a float, however small it is. That takes M * M / 2 subtractions. Powers of the Markov chain of clean streams give the
same, but take M ^ 3 * log k steps.
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
"""Bits behind the binary point. The smallest float is 2^-1074, and a float has 53 digits."""


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

    ConfigError for invalid numbers.

    >>> [round(odds, 4) for odds in lost_odds(64, 4, lost=2)]
    [0.878, 0.119, 0.003, 0.0, 0.0]
    """
    width = check_width(streams, streams_per_shard)
    check_count("lost", lost, 0, streams)
    return tuple(_drawn(streams, width, lost, j) for j in range(width + 1))


def busy(streams: int, streams_per_shard: int, noisy: int) -> float:
    """How many streams `noisy` shards cover together, on average.

    These are the busy streams: a message in a clean stream waits for one delivery of each. ConfigError for invalid
    numbers.

    >>> round(busy(64, 4, noisy=20))
    46
    """
    width = check_width(streams, streams_per_shard)
    check_count("noisy", noisy, 0)
    if width == streams:
        return float(streams if noisy else 0)
    return -streams * expm1(noisy * log1p(-width / streams))


def _drawn(streams: int, width: int, marked: int, j: int) -> float:
    """The odds that `width` streams drawn out of `streams` include exactly j of `marked` ones."""
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
    """The power of *base*, a multiple of 2^-bits, by repeated squaring."""
    power = 1 << bits
    while exponent:
        if exponent & 1:
            power = power * base >> bits
        base = base * base >> bits
        exponent >>= 1
    return power
