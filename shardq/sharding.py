"""Shuffle sharding: hashing deals each shard key M of a queue's N streams.

Each stream gets a score for the key, and the M streams with the highest scores are the shard (rendezvous hashing:
Thaler & Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1), 1998). All scores come from
one SHAKE-128 output::

    score of stream i = bytes [8i, 8i+8) of SHAKE-128("shardq/1" NUL key), unsigned, big-endian

A longer SHAKE-128 output begins with the shorter one, so a stream's score does not depend on N. Adding one stream to N
changes the shard of M/(N+1) of the keys, each by one stream; the other M-1 streams stay, in their order.

Two keys share all M streams with odds of 1 / C(N, M): 1 in 635,376 for 4 of 64. So when one key floods its shard,
nearly every other key still has a clean stream (source: AWS Builders' Library, "Workload isolation using
shuffle-sharding"). `Odds` computes the exact figures.

docs/internals/sharding.md describes the algorithm for other languages, and tests/golden/sharding.json has test
vectors. Version 1 must never change, because processes of different versions of shardq write to the same queue.

>>> shard("tenant-42", streams=16, streams_per_shard=2)
(12, 15)
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from math import ceil, comb
from sys import byteorder
from typing import Final

import msgspec

from shardq.arguments import iterable, shown
from shardq.errors import ConfigError
from shardq.shard_cache import MAX_SHARD_STREAMS, ShardCache

MAX_STREAMS: Final = 4096
"""The most streams that one queue may have."""

MAX_SHARD_KEY: Final = 1024
"""The longest shard key, in bytes of UTF-8."""

MAX_BITS: Final = 2**23
"""Bits of the whole numbers with which `Odds.blocked` computes: that takes a second."""

_DOMAIN: Final = b"shardq/1\0"
_HASHED: Final = hashlib.shake_128(_DOMAIN, usedforsecurity=False)
_START: Final = re.Match.start


def shard(key: str | bytes, streams: int, streams_per_shard: int) -> tuple[int, ...]:
    """Return the streams that hashing deals to a shard key, the one with the highest score first.

    `key` has 1 to 1,024 bytes; a str counts as its UTF-8, so ``"a"`` and ``b"a"`` get the same shard. `streams` is N, 1
    to 4,096. `streams_per_shard` is M, at least 1; more than N counts as N, so that a queue can shrink below M. The
    result has M distinct numbers from 0 to N-1, the same in every process, version and language. ConfigError for bad
    arguments. Safe across threads; cached for M up to 8.
    """
    return dealer(streams, streams_per_shard)(key)


def dealer(streams: int, streams_per_shard: int) -> Callable[[str | bytes], tuple[int, ...]]:
    """Return `shard` for one N and M, for callers that ask for many keys. ConfigError if they are bad."""
    return _dealer(streams, check_width(streams, streams_per_shard))


@lru_cache(maxsize=256)
def _dealer(streams: int, width: int) -> Callable[[str | bytes], tuple[int, ...]]:
    def deal(key: str | bytes) -> tuple[int, ...]:
        key = key_bytes(key)
        mark = hash((key, streams, width)) or 1
        dealt = _dealt.get(mark, width)
        if dealt is None:
            dealt = _deal(key, streams, width)
            _dealt.put(mark, dealt)
        return dealt

    return deal if width <= MAX_SHARD_STREAMS else lambda key: _deal(key_bytes(key), streams, width)


_dealt = ShardCache()


def _deal(key: bytes, streams: int, width: int) -> tuple[int, ...]:
    """Compute a shard."""
    raw = raw_scores(key, streams)
    # Only streams with a high first byte come into question, so few are sorted. On average enough reach it that only
    # one key in some hundred has too few of them: then the bar is lowered.
    first_bytes = raw[::8]
    found: list[int] = []
    times = 0
    while len(found) < width:
        found = [*map(_START, _finder(streams, width, times)(first_bytes))]
        times += 1
    scores = array("Q", raw)
    if byteorder == "little":
        scores.byteswap()
    found.sort(key=scores.__getitem__, reverse=True)  # stable: ties keep their order
    return tuple(found[:width])


@lru_cache(maxsize=1024)
def _finder(streams: int, width: int, times: int) -> Callable[[bytes], Iterator[re.Match[bytes]]]:
    """Return what finds the high first bytes. The bar was lowered *times* times."""
    reach = (width + 2 * width**0.5 + 1) * 2**times
    lowest = max(0, 256 - ceil(256 * reach / streams))
    return re.compile(b"[%b-\xff]" % re.escape(bytes([lowest])), re.DOTALL).finditer


def raw_scores(key: bytes, streams: int) -> bytes:
    """Return the scores of a key's streams as bytes: 8 for each, big-endian. For code that deals many keys at once."""
    hashed = _HASHED.copy()  # cheaper than a new one
    hashed.update(key)
    return hashed.digest(8 * streams)


def key_bytes(key: str | bytes) -> bytes:
    """Return a shard key as the 1 to 1,024 bytes that are hashed. ConfigError if it is not a valid key."""
    if isinstance(key, str):
        try:
            key = key.encode()
        except UnicodeEncodeError:
            raise ConfigError("a shard key must be valid Unicode: this one holds a lone surrogate") from None
    if not isinstance(key, bytes):
        raise ConfigError(f"a shard key must be str or bytes, not {type(key).__name__}")
    if not key:
        raise ConfigError("a shard key must not be empty: use the tenant, or any constant for one shard")
    if len(key) > MAX_SHARD_KEY:
        raise ConfigError(f"a shard key may have at most {MAX_SHARD_KEY} bytes, this one has {len(key)}")
    return key


def check_names(names: Iterable[str | bytes], limit: int) -> list[bytes]:
    """Return up to *limit* shard keys as bytes, in order, without duplicates. ConfigError for anything else."""
    listed = iterable("names", names, "shard keys")
    found = list(dict.fromkeys(map(key_bytes, islice(listed, limit + 1))))
    if len(found) > limit:
        raise ConfigError(f"at most {limit:,} shard keys can be named")
    return found


def check_width(streams: int, streams_per_shard: int) -> int:
    """Return how many streams a shard has: the smaller of the two. ConfigError if either is not a valid number."""
    if type(streams) is not int or not 1 <= streams <= MAX_STREAMS:
        raise ConfigError(f"streams must be an int from 1 to {MAX_STREAMS}, not {shown(streams)}")
    if type(streams_per_shard) is not int or streams_per_shard < 1:
        raise ConfigError(f"streams_per_shard must be an int of at least 1, not {shown(streams_per_shard)}")
    return min(streams, streams_per_shard)


def overlap(a: Iterable[int], b: Iterable[int]) -> int:
    """Return how many streams two shards share."""
    return len(set(a) & set(b))


class Odds(msgspec.Struct, frozen=True):
    """How well shuffle sharding with N streams, M of them in a shard, isolates shard keys. Odds are from 0 to 1.

    >>> odds = Odds(streams=64, streams_per_shard=4)
    >>> odds.shards, f"{odds.none:.1%}", f"{odds.blocked(noisy=20):.1%}"
    (635376, '76.7%', '27.1%')
    """

    streams: int
    streams_per_shard: int

    def __post_init__(self) -> None:
        width = check_width(self.streams, self.streams_per_shard)
        msgspec.structs.force_setattr(self, "streams_per_shard", width)

    @property
    def shards(self) -> int:
        """The number of different shards, C(N, M)."""
        return comb(self.streams, self.streams_per_shard)

    @property
    def overlap(self) -> tuple[float, ...]:
        """The odds that two keys share exactly j streams, for j = 0 to M (hypergeometric).

        Each is exact, rounded once to a float; below 1e-324 it is 0.0.
        """
        n, m, shards = self.streams, self.streams_per_shard, self.shards
        return tuple(comb(m, j) * comb(n - m, m - j) / shards for j in range(m + 1))

    @property
    def none(self) -> float:
        """The odds that two keys share no stream."""
        return self.overlap[0]

    @property
    def full(self) -> float:
        """The odds that two keys share all their streams, 1 / C(N, M)."""
        return 1 / self.shards

    def blocked(self, noisy: int) -> float:
        """Return the odds that `noisy` other keys together use every stream of a key's shard, so that none is clean.

        It is computed in whole numbers, by inclusion and exclusion over the j streams that none of them uses.
        ConfigError if `noisy` is not an int of at least 0, or is so large that the numbers would have millions of
        digits.
        """
        if type(noisy) is not int or noisy < 0:
            raise ConfigError(f"noisy must be an int of at least 0, not {shown(noisy)}")
        if self.shards.bit_length() * (self.streams_per_shard + 1) * noisy > MAX_BITS:
            raise ConfigError(f"noisy = {shown(noisy)} is too many: the numbers would have millions of digits")
        n, m = self.streams, self.streams_per_shard
        ways: int = sum((-1) ** j * comb(m, j) * comb(n - j, m) ** noisy for j in range(m + 1))
        total: int = self.shards**noisy
        return ways / total
