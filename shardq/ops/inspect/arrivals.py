"""Wait until a message comes into a queue, without reading any: for those who start workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from shardq.ops.inspect.stats import length
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Armed, Op, Refused, Unanswered

MAX_STREAMS: Final = 256
"""Streams of a queue that are waited on; the server looks at each when a wait begins."""


def arrival(state: QueueState, streams: int, since: float, seconds: float) -> Op[bool | None]:
    """Wait up to *seconds* for a message that was written after *since*, by the server's clock. Return whether one was.

    None says that it cannot be known: the queue has too many *streams*, or this user of Redis has no right to wait on
    them, or Redis is away. A message that comes due, or waited for a limit, is none that was written. Only clients for
    asyncio can wait so: it takes a connection, and in the other kind it would take a thread.
    """
    if not 0 < streams <= MAX_STREAMS:
        return None
    first, *others = map(state.keys.stream, range(streams))
    # Ids begin with the server's time in ms. All that were written before that instant are smaller.
    after = f"{max(0, round(since * 1000) - 1)}-{2**64 - 1}"
    try:
        _, entries = yield Armed(
            first, 1, math.ceil(seconds * 1000), None, math.inf, _Alone(), after=after, others=tuple(others)
        )
    except (Refused, Unanswered):
        return None
    if isinstance(entries, Refused):
        if entries.code in ("MOVED", "ASK"):
            yield from length(state)  # which finds the node that has the queue now
        return None
    return bool(entries)


class _Alone:
    """The driver gets this for a wait that nobody ends early."""

    end_wait: Callable[[], None]
