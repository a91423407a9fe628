"""What Redis said about one queue at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardq.model import QueueConfig
from shardq.protocol.replies import NOTHING_ASSIGNED, StoredAssignment
from shardq.sharding import key_bytes, shard


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue in one epoch: its streams, settings and stored assignment. It is replaced as a whole, never changed.

    The epoch in a call tells the server that the call was made with the right settings, while another thread may look
    the queue up at any time. So everything in one call comes from one view. With epoch '' the queue must be looked up.
    It `has_results` if any were kept when it was looked up.
    `id` is the queue's, in all epochs of its life.
    `positions_cache` holds one dict, from a shard key to its positions as `write` takes them; when it grows large,
    an empty dict replaces it. `words_cache` has what single writes that declare so many streams have in common, and
    `heads_cache`, for each tag, what all messages of a shard key have in common in calls for many.
    """

    epoch: str = ""
    streams: int = 0
    wanted: int = 0
    config: QueueConfig = field(default_factory=QueueConfig)
    assigned: StoredAssignment = NOTHING_ASSIGNED
    has_results: bool = False
    id: str = ""
    positions_cache: list[dict[str | bytes, bytes]] = field(default_factory=lambda: [{}], compare=False, repr=False)
    words_cache: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)
    heads_cache: dict[str, dict[str | bytes, bytes]] = field(default_factory=dict, compare=False, repr=False)

    def shard(self, key: str | bytes) -> tuple[int, ...]:
        """Return the streams assigned to *key*, or those that hashing deals to it."""
        assigned = self.assigned.by_key
        if assigned and (streams := assigned.get(key_bytes(key))):
            return streams
        return shard(key, self.wanted, self.config.streams_per_shard)

    @property
    def choices(self) -> int:
        """The largest number of streams that a message may go to."""
        return min(self.wanted, max(self.config.streams_per_shard, self.assigned.width))
