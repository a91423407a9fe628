"""How many streams does a queue need, and how many of them does a shard need: N and M?

Given are the number of tenants, how many of them flood at a time (`noisy`), and the share of the others that shall keep
a clean stream, one that no flood writes to. For each M there is a smallest N that reaches this share (`frontier`). A
larger M needs fewer streams, up to about M = N / noisy x ln 2: a shard is like the probe of a Bloom filter that the
noisy tenants fill (Bloom, CACM 13(7), 1970). But each noisy tenant then keeps M streams busy, so all others wait
longer. `plan` takes the point of the frontier where streams x busy streams is least: memory times waiting.
"""

from __future__ import annotations

from bisect import bisect_left
from math import comb
from typing import Final

import msgspec

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.planner.costs import Cost, cost
from shardq.planner.odds import busy, check_count, clean_odds, lost_odds
from shardq.sharding import MAX_STREAMS, Odds, check_width

MAX_STREAMS_PER_SHARD: Final = 16
"""The largest M that `plan` considers. Each write declares a key for each stream of the shard."""


class Plan(msgspec.Struct, frozen=True):
    """`streams` (N), `streams_per_shard` (M), for a number of `tenants` while `noisy` of them flood.

    The other fields are the result. ConfigError for invalid numbers.

    >>> chosen = Plan(streams=64, streams_per_shard=4, tenants=1_000, noisy=20)
    >>> f"{chosen.isolation:.1%}", round(chosen.busy)
    ('72.9%', 46)
    """

    streams: int
    streams_per_shard: int
    tenants: int
    noisy: int

    def __post_init__(self) -> None:
        width = check_width(self.streams, self.streams_per_shard)
        msgspec.structs.force_setattr(self, "streams_per_shard", width)
        check_count("tenants", self.tenants, 1)
        check_count("noisy", self.noisy, 0, self.tenants)

    @property
    def odds(self) -> Odds:
        """How two shards overlap."""
        return Odds(self.streams, self.streams_per_shard)

    @property
    def clean(self) -> tuple[float, ...]:
        """The share of quiet tenants with exactly c clean streams while the noisy flood, for c = 0 to M."""
        return self.beside(self.noisy)

    def beside(self, noisy: int) -> tuple[float, ...]:
        """The share of tenants with exactly c clean streams while `noisy` others flood, for c = 0 to M.

        ConfigError for a bad number.

        >>> [round(share, 3) for share in chosen.beside(5)]
        [0.005, 0.057, 0.243, 0.43, 0.266]
        """
        return clean_odds(self.streams, self.streams_per_shard, noisy)

    @property
    def isolation(self) -> float:
        """The share of quiet tenants that keep a clean stream."""
        return 1 - self.clean[0]

    @property
    def without_clean(self) -> float:
        """How many quiet tenants have no clean stream, on average."""
        return (self.tenants - self.noisy) * self.clean[0]

    @property
    def busy(self) -> float:
        """Busy streams: how many the noisy tenants write to, on average.

        A message in a clean stream waits for one delivery of each busy stream.
        """
        return busy(self.streams, self.streams_per_shard, self.noisy)

    @property
    def same_shard(self) -> float:
        """How many other tenants have the same shard as a given one, on average."""
        return (self.tenants - 1) / comb(self.streams, self.streams_per_shard)

    def lost(self, lost: int) -> tuple[float, ...]:
        """The share of tenants that lose exactly j of their streams when `lost` streams are lost, for j = 0 to M.

        ConfigError for a bad number.

        >>> [round(share, 3) for share in chosen.lost(2)]
        [0.878, 0.119, 0.003, 0.0, 0.0]
        """
        return lost_odds(self.streams, self.streams_per_shard, lost)

    @property
    def cost(self) -> Cost:
        """The cost of this plan's streams and shards."""
        return cost(self.streams, self.streams_per_shard)


def frontier(tenants: int, noisy: int, isolation: float, *, most: int = MAX_STREAMS) -> list[Plan]:
    """For each M up to `MAX_STREAMS_PER_SHARD`, the plan with the fewest streams that reaches the isolation.

    The list ends at the M beyond which a larger one saves no streams. It is empty when `most` streams do not suffice.
    ConfigError for invalid numbers.

    >>> [(each.streams, each.streams_per_shard) for each in frontier(10_000, 20, 0.99)][:3]
    [(1991, 1), (377, 2), (246, 3)]
    """
    if type(isolation) not in (float, int) or not 0 < isolation < 1:
        raise ConfigError(f"isolation must be a share between 0 and 1, such as 0.99, not {shown(isolation)}")
    check_count("most", most, 1, MAX_STREAMS)
    check_count("tenants", tenants, 1)
    check_count("noisy", noisy, 1, tenants)
    found: list[Plan] = []
    for width in range(1, min(MAX_STREAMS_PER_SHARD, most) + 1):
        streams = _fewest(width, noisy, isolation, found[-1].streams - 1 if found else most)
        if streams:
            found.append(Plan(streams, width, tenants, noisy))
        elif found:
            break
    return found


def plan(tenants: int, noisy: int, isolation: float = 0.99, *, most: int = MAX_STREAMS) -> Plan:
    """N and M with which, while `noisy` tenants flood, the share `isolation` of the others keeps a clean stream.

    `tenants`: 1 to 1,000,000,000. `noisy`: 1 to `tenants`. `isolation`: between 0 and 1. `most`: the largest number of
    streams. ConfigError when a number is invalid, or `most` streams do not reach the isolation.

    >>> chosen = plan(tenants=10_000, noisy=20, isolation=0.99)
    >>> chosen.streams, chosen.streams_per_shard, f"{chosen.isolation:.2%}"
    (246, 3, '99.01%')
    """
    found = frontier(tenants, noisy, isolation, most=most)
    if not found:
        raise ConfigError(
            f"{most:,} streams cannot keep a clean one for {isolation:.10g} of the tenants while {noisy:,} flood: "
            f"plan for fewer noisy tenants at a time, or for a lower isolation"
        )
    return min(found, key=lambda each: each.streams * each.busy)


def _fewest(width: int, noisy: int, isolation: float, most: int) -> int | None:
    """The fewest streams, at most `most`, with which shards of this width reach the isolation; None if there are none.

    More streams never lower the isolation, so a binary search finds them.
    """

    def reaches(streams: int) -> bool:
        return 1 - clean_odds(streams, width, noisy)[0] >= isolation  # the same formula as in `Plan.isolation`

    streams = width + bisect_left(range(width, most + 1), True, key=reaches)
    return streams if streams <= most else None
