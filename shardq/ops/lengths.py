"""How many undelivered messages streams have."""

from __future__ import annotations

from shardq.engine import NEW
from shardq.ops.retry import ask, retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Call, Op

AT_ONCE = 1000


def lengths(state: QueueState, streams: int, until: float, *, start: int = 0) -> Op[list[int]]:
    """Return how many undelivered messages each stream has, from number *start* on, of *streams* in all."""
    found: list[int] = []
    for first in range(start, streams, AT_ONCE):
        part = range(first, min(first + AT_ONCE, streams))
        if NEW:
            fields = map(state.keys.stream, part)
            found += [
                int(each or 0) for each in (yield from ask(state, "HMGET", state.keys.meta, *fields, until=until))
            ]
        else:
            call = Call.on(state.keys, "lengths", (first, len(part)))
            found += yield from retry_until(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
    return found
