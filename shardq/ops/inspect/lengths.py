"""How many undelivered messages streams have."""

from __future__ import annotations

from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op

QUEUES_AT_ONCE = 1000


def lengths(state: QueueState, streams: int, until: float, *, start: int = 0) -> Op[list[int]]:
    """Return how many undelivered messages each stream has, from number *start* on; the queue has *streams*."""
    found: list[int] = []
    for first in range(start, streams, QUEUES_AT_ONCE):
        part = range(first, min(first + QUEUES_AT_ONCE, streams))
        texts = yield from ask(state, "HMGET", state.keys.meta, *map(state.keys.stream, part), until=until)
        found += [int(text or 0) for text in texts]
    return found
