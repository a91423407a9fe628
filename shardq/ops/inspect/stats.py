"""How much a queue has: len and stats."""

from __future__ import annotations

from shardq.model import QueueStats
from shardq.model.partitions import map_of
from shardq.ops.inspect.lengths import lengths
from shardq.ops.queue.opening import (
    missing,
    remember,
)
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.replies import pairs, stats

MAX_LENGTHS = 1000


def length(state: QueueState, timeout: float | None = None) -> Op[int]:
    """Return how many messages still need work: backlog + in flight. QueueMissing as of `statistics`."""
    call = Call.on(state.keys, "len")
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if int(reply) < 0:
        require_settings(state)
    return max(0, int(reply))


def require_settings(state: QueueState) -> None:
    """QueueMissing for a queue that is not there, unless this client has settings for it.

    Then its first write makes it, so that there is nothing in it yet. Everybody else may have mistyped the name, and
    must not take that for an empty queue.
    """
    if not state.creates:
        raise missing(state)


def statistics(state: QueueState, timeout: float | None = None) -> Op[QueueStats]:
    """Return the queue's numbers at one instant. QueueMissing if there is no such queue, but see `require_settings`."""
    found = yield from numbers(state, timeout)
    if not found.streams:
        require_settings(state)
    return found


def numbers(state: QueueState, timeout: float | None = None) -> Op[QueueStats]:
    """Return the queue's numbers at one instant, without streams and all zero while there is no queue. It only reads.

    If the queue has more than 1,000 streams, their lengths come from later calls and are from a moment later.
    """
    until = state.until(timeout)
    while True:
        keys, streams = state.keys, state.streams
        legacy = (state.config.legacy_stream,) if state.config.legacy_stream else ()
        declared = (*map(keys.stream, range(streams)), *legacy)
        call = Call.on(keys, "stats", (len(legacy), MAX_LENGTHS), rest=declared)
        reply = yield from retry_until(always(call), until, state.clock)
        if len(reply) == 1:
            return stats(keys.name, reply)
        meta = pairs(reply[8])
        # The call declared the streams that this client knew: with others the ages and lengths would lack some.
        same_map = meta.get("partitions", map_of(1)) == map_of(state.config.partitions)
        if int(meta["streams"]) == streams and ("legacy_stream" in meta) == bool(legacy) and same_map:
            reply[6] += yield from lengths(state, streams, until, start=len(reply[6]))
            return stats(keys.name, reply)
        # Only the number of streams matters for the next try, so the assignment is not read. (With another map, the
        # client knows it for its next call.)
        remember(state, meta, state.view.assigned, created=False, known=state.streams > 0)
        state.forget()  # the next call that changes the queue looks it up again
