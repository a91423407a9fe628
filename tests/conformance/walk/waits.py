"""What a walk does not ask for yet, and why: each line goes when the queue keeps it. SHARDQ_WALK_ALL=1 asks for all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

WAITS: Mapping[str, str] = MappingProxyType({
    "max_backlog bounds what is delayed": "a delayed message is stored whatever its shard key has waiting",
    "everybody goes by the present settings": "other clients use old max_deliveries and max_dead",
    "full dead letters beside a window": "a rejected message that is parked ends up where it starves others",
    "a batch keeps the order of each stream": "replies are sorted by shard key, across streams",
    "who has room is let in when the rules change": "what a cap held back waits until somebody touches its account",
    "a cap holds beside leases of an earlier one": "when it ends the present account counts down",
    "accounts of an earlier cap go": "changing a cap leaves a field of each tenant in flight for ever",
})  # fmt: skip


def waits_for(rule: str) -> bool:
    """Whether *rule* is not asked for yet."""
    return rule in WAITS and "SHARDQ_WALK_ALL" not in os.environ
