"""The partitions of a queue, as scenes tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardq.dashboard.numbers import allowed, of_queue
from shardq.dashboard.source import FRESH, Source
from shardq.model import QueueStats
from shardq.ops.inspect.stats import statistics
from shardq.partitions.over import each_of


async def partitions(source: Source, queue: str) -> list[dict[str, Any]]:
    """Return what each partition of a queue has; [] of a queue that has no others.

    One that is `draining` is written to no more, and goes away once it is empty.
    """
    state = source.queue(queue).state
    if state.parts is None:  # a look at the queue would have found them
        return []

    async def ask() -> Sequence[QueueStats]:
        return await source.client.run(each_of(state, statistics))

    found = await allowed(of_queue(source, "partitions", queue, ask, FRESH))
    if found is None or len(found) < 2:
        return []
    written = state.parts.map.written
    return [
        {
            "number": number,
            "waiting": each.backlog,
            "oldest": each.oldest_age,
            "in_flight": each.in_flight,
            "delivered": each.delivered,
            "draining": number >= written,
        }
        for number, each in enumerate(found)
    ]
