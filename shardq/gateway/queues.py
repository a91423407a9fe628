"""A gateway's memory of queues: those that it wrote to last, and for a second those that do not exist.

Clients choose the names, so nothing is kept for a name but within a bound.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from shardq.client import AsyncClient
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import forget_keys
from shardq.protocol.keys import QueueKeys

MAX_QUEUES: Final = 1_000
"""Queues that are remembered, twice if clients write to them with and without releases."""
MISSING_FOR: Final = 1.0
"""Seconds for which a queue is taken for missing, or for one without parents, after Redis has said so."""
MAX_MISSING: Final = 10_000


class Queues:
    """The queues of a gateway, by name and by for how long Redis remembers the ids of their messages."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, float | None], QueueState] = OrderedDict()
        self._missing: OrderedDict[str, float] = OrderedDict()
        self._looked: OrderedDict[str, float] = OrderedDict()

    def state(self, name: str, remember: float | None) -> QueueState:
        """Return what is known of a queue. `note` keeps it, if there is such a queue."""
        known = self._known.get((name, remember))
        return known or self._client.new_state(name, {}, remember)

    def note(self, state: QueueState) -> None:
        """Remember a queue that exists, and forget one that does not."""
        key = state.keys.name, state.remember
        if not state.epoch:
            self._known.pop(key, None)
            return
        self._known[key] = state
        self._known.move_to_end(key)
        if len(self._known) > 2 * MAX_QUEUES:
            self._known.popitem(last=False)

    def missed(self, keys: QueueKeys) -> None:
        """Note that Redis has said that there is no such queue."""
        forget_keys(keys)
        name = keys.name
        self._missing[name] = self._client.clock.monotonic() + MISSING_FOR
        self._missing.move_to_end(name)
        if len(self._missing) > MAX_MISSING:
            self._missing.popitem(last=False)

    def look_again(self, name: str) -> bool:
        """Return whether it is time to look at a queue's settings again, because messages are refused for them."""
        now = self._client.clock.monotonic()
        if now < self._looked.get(name, now):
            return False
        self._looked[name] = now + MISSING_FOR
        self._looked.move_to_end(name)
        if len(self._looked) > MAX_QUEUES:
            self._looked.popitem(last=False)
        return True

    def is_missing(self, name: str) -> bool:
        """Return whether Redis has said a moment ago that there is no such queue."""
        until = self._missing.get(name)
        if until is None:
            return False
        if until > self._client.clock.monotonic():
            return True
        del self._missing[name]
        return False
