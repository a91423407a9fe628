"""tidy: the last partition is deleted once nothing is written to it and nobody can ask for anything of it.

It is deleted first, and leaves the map then: so who writes to it by an old map is told that it is gone, and deals the
message to its home. Between its look and the deletion the epoch of the head moves: so no `resize` that has looked
before can write to it again, and one that looks later creates it anew.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from shardq.errors import QueueMissing, ShardqError
from shardq.ops.inspect.stats import numbers
from shardq.ops.queue.change import Changed
from shardq.ops.queue.opening import log
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import Same, retry_until
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.partitions.parts import Parts
from shardq.partitions.resize import store_map

EVERY: Final = 10.0
SELDOM: Final = 300.0
"""Seconds between two looks of a client: while messages are left, and at most while only time must pass."""
PATIENCE: Final = 0.25
"""Seconds for which a reader waits for the look: a node that does not answer keeps nobody from others for long."""
RETENTION: Final = 3600.0
"""Seconds after the last write for which a drained partition stays at least: a write that got no answer may come again.
"""


def tidy(parts: Parts) -> Op[bool]:
    """Delete the last partition if it is drained, and its time is over. Return whether the map has changed.

    A client looks now and then. A failure is only logged, such as that of a user who may not delete any.
    """
    now = parts.whole.clock.monotonic()
    if parts.map.read == parts.map.written or now < parts.tidy_at:
        return False
    parts.tidy_at = now + SELDOM  # before it is tried: what fails is not tried again at once
    try:
        return (yield from _tidy(parts, now))
    except Changed:  # by another client
        return True
    except ShardqError as error:
        log.warning("a drained partition of queue %r was not removed: %s", parts.whole.keys.name, error)
        return False


def _tidy(parts: Parts, now: float) -> Op[bool]:
    left = yield from _left(parts, parts.states[-1])
    if left > 0:
        parts.tidy_at = now + min(max(left, EVERY), SELDOM)
        return False
    return (yield from _remove(parts, parts.states[0], parts.states[-1]))


def _left(parts: Parts, state: QueueState) -> Op[float]:
    """Return how many seconds a partition has to stay, as far as can be seen; 0 if it may go, or is not there.

    Its epoch is read before the head is looked at: see `furnish`.
    """
    seen = yield from outcome_of(sight(state, state.until(PATIENCE)))
    if isinstance(seen, ShardqError):
        if not isinstance(seen, QueueMissing):
            raise seen
        state.forget()
        return 0.0
    state.know(seen.view)
    if parts.map.towards and parts.map.towards[1] / 1000 > seen.time:
        return EVERY  # a resize is under way
    found = yield from numbers(state, PATIENCE)
    if found.backlog + found.in_flight + found.delayed + found.dead + found.result_count:
        return EVERY
    return max(0.0, seen.written_at + _retention(state) - seen.time)


def _retention(state: QueueState) -> float:
    return max(state.config.dedup_window, RETENTION)


def _remove(parts: Parts, head: QueueState, state: QueueState) -> Op[bool]:
    """Delete a partition that may go, and then take it out of the map. Changed if another client was here.

    Return False if it may not go, as the server sees it.
    """
    epoch = state.epoch
    if epoch:
        yield from store_map(head, parts.make, parts.map, parts.map)
        rest = (*state.keys.everything, *map(state.keys.stream, range(state.streams)))
        args = (epoch, 0, round(_retention(state) * 1000))
        call = Same(Call.on(state.keys, "delete", args, rest=rest))
        word, _ = yield from retry_until(call, state.until(), state.clock)
        if word not in (b"OK", b"NOQUEUE"):
            return False
    salts = parts.map.salts[:-1]
    following = replace(parts.map, salts=salts, others=parts.map.others if salts else (), towards=None)
    yield from store_map(head, parts.make, parts.map, following)
    return True
