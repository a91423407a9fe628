"""Redis's view of one queue at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardq.model import QueueConfig
from shardq.protocol.replies import NOTHING_ASSIGNED, StoredAssignment
from shardq.sharding import dealer, key_bytes

CACHED: Final = 16_384
"""Shard keys whose streams a view remembers."""

CACHED_KEY: Final = 128
CACHED_WIDTH: Final = 32
"""Longer keys are looked up each time, and those with more streams. This bounds the bytes of it."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue in one epoch: its streams, settings and stored assignment. It is replaced as a whole, never changed.

    The epoch in a call tells the server that the call was made with the right settings, while another thread may look
    the queue up at any time. So everything in one call comes from one view. With epoch '' the queue must be looked up.
    It `has_results` if any were kept when it was looked up. `id` is the queue's, in all epochs of its life.
    `generation` is that of the newest map of partitions that it knows (lua/knows.lua).

    `shards` has the streams of each shard key. `positions_cache` holds one dict, from a shard key to its positions as
    `write` takes them; when it grows large, an empty dict replaces it. `words_cache` has the words that single writes
    of one kind have in common, and `heads_cache`, for each tag, those that all messages of a shard key have in common
    in calls for many.
    """

    epoch: str = ""
    streams: int = 0
    wanted: int = 0
    config: QueueConfig = field(default_factory=QueueConfig)
    assigned: StoredAssignment = NOTHING_ASSIGNED
    has_results: bool = False
    id: str = ""
    generation: int = 0
    choices: int = field(init=False, compare=False, default=0)
    has_upkeep: bool = field(init=False, compare=False, default=False)
    shards: Shards = field(init=False, compare=False, repr=False)
    positions_cache: list[dict[str | bytes, bytes]] = field(default_factory=lambda: [{}], compare=False, repr=False)
    words_cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    heads_cache: dict[str, dict[str | bytes, bytes]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Set what follows from the rest.

        `choices` is the largest number of streams that a message may go to. `has_upkeep` says whether `upkeep` may have
        anything to do.
        """
        config, has_drained = self.config, self.wanted < self.streams
        has_old_results = self.has_results and config.result_ttl is None
        has_upkeep = config.ttl is not None or has_drained or config.dead_ttl is not None or has_old_results
        object.__setattr__(self, "has_upkeep", has_upkeep)
        choices = min(self.wanted, max(self.config.streams_per_shard, self.assigned.width))
        object.__setattr__(self, "choices", choices)
        object.__setattr__(self, "shards", Shards(self.wanted, self.config.streams_per_shard, self.assigned.by_key))

    def shard(self, key: str | bytes) -> tuple[int, ...]:
        """Return the streams assigned to *key*, or those that hashing deals to it."""
        return self.shards[key]


class Shards(dict[str | bytes, tuple[int, ...]]):
    """The streams of each shard key that was asked for: those *assigned* to it, or those that hashing deals to it."""

    def __init__(self, streams: int, streams_per_shard: int, assigned: Mapping[bytes, tuple[int, ...]]) -> None:
        super().__init__()
        self._streams, self._per_shard, self._assigned = streams, streams_per_shard, assigned
        self._dealt: Callable[[str | bytes], tuple[int, ...]] | None = None

    def __missing__(self, key: str | bytes) -> tuple[int, ...]:
        """Look it up. ConfigError for a bad key."""
        streams = self.deal(key)
        if len(key) <= CACHED_KEY and len(streams) <= CACHED_WIDTH:
            if len(self) >= CACHED:
                self.clear()  # the cache of dealt shards has more of them, for all queues together
            self[key] = streams
        return streams

    def deal(self, key: str | bytes) -> tuple[int, ...]:
        """Return its streams, and keep nothing."""
        assigned = self._assigned.get(key_bytes(key)) if self._assigned else None
        if assigned:
            return assigned
        if self._dealt is None:  # not before: a queue that was not opened yet has no streams
            self._dealt = dealer(self._streams, self._per_shard)
        return self._dealt(key)
