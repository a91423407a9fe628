"""Shards for named tenants such that any two share at most k streams: a guarantee, where dealing gives only odds.

The method is that of the stateful searching shuffle sharder of Amazon Route 53 Infima: it remembers the shards that it
gave out, and searches for a new one that overlaps none of them too much. Two shards share more than k streams exactly
when they have a set of k+1 streams in common. So the sets of k+1 streams that are taken are stored, and a candidate is
checked by C(M, k+1) look-ups, however many tenants there are.

The first candidate of a tenant is the shard that it is dealt anyway (`shardq.sharding.shard`), so most tenants keep
theirs. Then come shards dealt to salted keys, then a search through all shards, up to a number of steps. A tenant that
has a shard keeps it when others are added. The same additions in the same order give the same shards everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import comb
from typing import Final

from shardq.arguments import iterable, mapping, shown, whole
from shardq.errors import ConfigError
from shardq.sharding import check_width, key_bytes, shard

MAX_NAMED: Final = 100_000
MAX_TAKEN: Final = 10_000_000
"""Bounds of an assignment: its tenants, and the sets of streams that they take (about 100 bytes each)."""

DEALT_TRIES: Final = 200
SEARCH_STEPS: Final = 200_000
"""How many dealt shards are tried, and how many steps the search through all shards takes, before it gives up."""

Streams = tuple[int, ...]


def capacity(streams: int, streams_per_shard: int, max_overlap: int) -> int:
    """An upper bound on the number of shards if any two share at most `max_overlap` streams.

    This is Johnson's bound on packings (IRE Trans. IT 8, 1962). The shards that hold a given stream are, without it, a
    packing of N-1 streams, M-1 per shard, with an overlap of one less. Summed over all streams each shard counts M
    times. Real assignments often reach 40 to 100 % of the bound. ConfigError for invalid numbers.

    >>> capacity(64, 4, 1)
    336
    """
    width = check_width(streams, streams_per_shard)
    whole("max_overlap", max_overlap, 0, width - 1)
    bound = 1
    for drop in range(max_overlap, -1, -1):
        bound = (streams - drop) * bound // (width - drop)
    return bound


class Assignment:
    """Which shard each named tenant has.

    `streams` (N) and `streams_per_shard` (M, `width`) are those of the queue; `max_overlap` is 0 to M - 1. There
    is room for `capacity` tenants at most.

    >>> named = Assignment(16, 4, max_overlap=1)
    >>> named.add("acct-1"), named.add("acct-2"), named.add("acct-3")
    ((3, 13, 12, 10), (9, 1, 4, 3), (2, 0, 15, 6))
    """

    def __init__(self, streams: int, streams_per_shard: int, *, max_overlap: int) -> None:
        self.streams = streams
        self.width: int = check_width(streams, streams_per_shard)
        self.max_overlap: int = whole("max_overlap", max_overlap, 0, self.width - 1)
        self.capacity: int = capacity(streams, self.width, max_overlap)
        self._shards: dict[bytes, Streams] = {}
        self._taken: set[Streams] = set()

    @classmethod
    def of(
        cls,
        shards: Mapping[str | bytes, Iterable[int]],
        streams: int,
        streams_per_shard: int,
        *,
        max_overlap: int,
    ) -> Assignment:
        """Load an assignment that was stored; ConfigError names the tenant whose shard breaks the rules.

        >>> again = Assignment.of(dict(named.items()), 16, 4, max_overlap=1)
        >>> again["acct-1"]
        (3, 13, 12, 10)
        """
        made = cls(streams, streams_per_shard, max_overlap=max_overlap)
        for key, dealt in mapping("shards", shards, "shard keys to streams").items():
            made._keep(key_bytes(key), made._checked(key, tuple(iterable("a shard", dealt, "streams"))))
        return made

    def __len__(self) -> int:
        return len(self._shards)

    def __repr__(self) -> str:
        """How many tenants have a shard, and how much the shards may overlap."""
        return (
            f"Assignment({len(self):,} of at most {self.capacity:,} shards, {self.width} of {self.streams:,} streams "
            f"each, any two share at most {self.max_overlap})"
        )

    def __contains__(self, key: str | bytes) -> bool:
        return key_bytes(key) in self._shards

    def __getitem__(self, key: str | bytes) -> Streams:
        """The shard of a tenant, KeyError when it has none."""
        return self._shards[key_bytes(key)]

    def items(self) -> Iterator[tuple[bytes, Streams]]:
        """Tenants and their shards, in the order in which they were added. It raises nothing.

        >>> [key for key, streams in named.items()]
        [b'acct-1', b'acct-2', b'acct-3']
        """
        return iter(self._shards.items())

    def add(self, key: str | bytes) -> Streams:
        """The tenant's shard: the one it has, else a new one. Shards of other tenants do not change.

        ConfigError, and nothing changes, when `capacity` is reached or no shard was found within the search's steps.
        """
        name = key_bytes(key)
        if name in self._shards:
            return self._shards[name]
        self._check_room()
        found = next((dealt for dealt in self._candidates(name) if self._fits(dealt)), None) or self._search(name)
        self._keep(name, found)
        return found

    def remove(self, key: str | bytes) -> None:
        """Forget a tenant, so that others may get its streams. KeyError when it has no shard.

        >>> named.remove("acct-1")
        >>> "acct-1" in named, len(named)
        (False, 2)
        """
        self._taken.difference_update(self._sets(self._shards.pop(key_bytes(key))))

    def _candidates(self, name: bytes) -> Iterator[Streams]:
        """Shards to try first: the one that the tenant is dealt, then those of salted keys."""
        yield shard(name, self.streams, self.width)
        for attempt in range(1, DEALT_TRIES):
            yield shard(_salted(name, attempt), self.streams, self.width)

    def _search(self, name: bytes) -> Streams:
        """Search all shards depth first, stream by stream in an order of the tenant's own, for `SEARCH_STEPS` steps.

        A branch ends as soon as the chosen streams include a taken set, or too few streams are left.
        """
        order = shard(_salted(name, 0), self.streams, self.streams)
        chosen: list[int] = []  # positions in `order`, rising
        position = 0
        for _ in range(SEARCH_STEPS):
            if len(chosen) == self.width:
                return tuple(order[at] for at in chosen)
            if self.streams - position < self.width - len(chosen):
                if not chosen:
                    raise self._no_room("every shard that is left overlaps too much with an assigned one")
                position = chosen.pop() + 1
                continue
            if self._extends([order[at] for at in chosen], order[position]):
                chosen.append(position)
            position += 1
        raise self._no_room(f"none was found in {SEARCH_STEPS:,} steps")

    def _extends(self, chosen: list[int], stream: int) -> bool:
        """Whether `stream` can be added to `chosen`: no set of it and some of them is taken."""
        return not any(tuple(sorted((*some, stream))) in self._taken for some in combinations(chosen, self.max_overlap))

    def _sets(self, dealt: Streams) -> Iterator[Streams]:
        """The sets of max_overlap + 1 streams in a shard: two shards with one in common overlap too much."""
        return combinations(sorted(dealt), self.max_overlap + 1)

    def _fits(self, dealt: Streams) -> bool:
        return self._taken.isdisjoint(self._sets(dealt))

    def _keep(self, name: bytes, dealt: Streams) -> None:
        self._shards[name] = dealt
        self._taken.update(self._sets(dealt))

    def _checked(self, key: str | bytes, dealt: Streams) -> Streams:
        if key_bytes(key) in self._shards:
            raise ConfigError(f"shard key {shown(key)} is assigned twice")
        if not all(type(stream) is int and 0 <= stream < self.streams for stream in dealt):
            raise ConfigError(f"the shard of {shown(key)} must hold streams from 0 to {self.streams - 1}")
        if len(set(dealt)) != self.width or len(dealt) != self.width:
            raise ConfigError(f"the shard of {shown(key)} must hold {self.width} different streams")
        if not self._fits(dealt):
            raise ConfigError(
                f"the shard of {shown(key)} shares more than {self.max_overlap} streams with an earlier one"
            )
        self._check_room()
        return dealt

    def _check_room(self) -> None:
        if len(self._shards) >= self.capacity:
            raise self._no_room(f"there cannot be more than {self.capacity:,}")
        if len(self._shards) >= MAX_NAMED:
            raise self._no_room(f"an assignment holds at most {MAX_NAMED:,} tenants")
        if len(self._taken) + comb(self.width, self.max_overlap + 1) > MAX_TAKEN:
            raise self._no_room(f"they would take more than {MAX_TAKEN:,} sets of {self.max_overlap + 1} streams")

    def _no_room(self, why: str) -> ConfigError:
        return ConfigError(
            f"no room for tenant {len(self._shards) + 1:,} in {self.streams} streams, {self.width} per shard, "
            f"{self.max_overlap} shared at most: {why}. Add streams, allow a larger overlap, or remove tenants"
        )


def _salted(name: bytes, attempt: int) -> bytes:
    """Another key to deal a shard for. It is never longer than a shard key may be, and never equal to a tenant's."""
    return hashlib.sha256(b"shardq/assigned/1\x000\x00%d\x00" % attempt + name).digest()
