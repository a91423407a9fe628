"""What Redis said of one queue, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardq.model import QueueConfig
from shardq.protocol.replies import NOTHING_ASSIGNED, StoredAssignment
from shardq.sharding import key_bytes, shard


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue in one epoch: its streams, its settings, the stored assignment. Never changed, only replaced whole.

    Threads look queues up at once, and an epoch's number tells the server that a call knows the rest: so what goes into
    one call is taken from one view. Without an `epoch` the queue is to be looked up. `spelled` holds a dict of shards
    as the scripts want them; where it grows large, another takes its place.
    """

    epoch: str = ""
    streams: int = 0
    wanted: int = 0
    config: QueueConfig = field(default_factory=QueueConfig)
    assigned: StoredAssignment = NOTHING_ASSIGNED
    positions_cache: list[dict[str | bytes, bytes]] = field(default_factory=lambda: [{}], compare=False, repr=False)

    def shard(self, key: str | bytes) -> tuple[int, ...]:
        """The streams assigned to *key*, else those dealt to it."""
        assigned = self.assigned.by_key
        if assigned and (streams := assigned.get(key_bytes(key))):
            return streams
        return shard(key, self.wanted, self.config.streams_per_shard)

    @property
    def choices(self) -> int:
        """Of how many streams a message may choose at most."""
        return min(self.wanted, max(self.config.streams_per_shard, self.assigned.width))
