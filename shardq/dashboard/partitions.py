"""The partitions of a queue, as scenes tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardq.dashboard.numbers import allowed, of_queue
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.model.partitions import Partition
from shardq.partitions.listed import listed


async def partitions(source: SceneSource, queue: str) -> list[dict[str, Any]]:
    """Return where each partition of a queue is, and what it has; [] of a queue that has no others.

    One that is `draining` is written to no more, and goes away once it is empty. One that does not answer is `silent`,
    and has no numbers, nor has one that is `gone`.
    """
    state, client = source.queue(queue).state, source.client
    if state.parts is None:  # a look at the queue would have found them
        return []

    async def ask() -> Sequence[Partition]:
        return await client.run(listed(state, client.state_of_part))

    found = await allowed(of_queue(source, "partitions", queue, ask, FRESH_SECONDS))
    return [] if found is None or len(found) < 2 else [row_of(each) for each in found]


def row_of(part: Partition) -> dict[str, Any]:
    """Return the row of one partition."""
    now = part.stats
    return {
        "number": part.number,
        "node": part.node,
        "waiting": None if now is None else now.backlog,
        "oldest": None if now is None else now.oldest_age,
        "in_flight": None if now is None else now.in_flight,
        "delivered": None if now is None else now.delivered,
        "draining": not part.is_written,
        "silent": now is None,
        "gone": part.is_gone,
    }
