"""How many messages an action would be about: they are looked up as it would, and nothing is changed."""

from __future__ import annotations

from shardq.model.action import ActionKind
from shardq.model.where import Where
from shardq.ops.operate.selection import Search, check, next_page
from shardq.ops.queue.opening import require_queue
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op


def count(
    state: QueueState, kind: ActionKind, where: Where, started: float, limit: int | None, timeout: float | None
) -> Op[int]:
    """Return how many messages *where* selects of those that were there at *started*, at most *limit*.

    ConfigError if the action cannot be about such messages; QueueMissing if there is no such queue.
    """
    check(kind, where)
    yield from require_queue(state, state.until(timeout))
    search, found = Search(kind, where, started), 0
    search.restart()
    while not search.is_over and (limit is None or found < limit):
        found += len((yield from next_page(state, search)))
    return found if limit is None else min(found, limit)
