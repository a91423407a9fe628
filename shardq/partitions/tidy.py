"""tidy: the last partition is deleted once nothing is written to it and nobody can ask for anything of it.

It is deleted first, and leaves the map then: so a client that writes to it by an old map learns that it is gone, and
deals the message to its home. Between its look and the deletion the epoch of the head moves: so no `resize` that has
looked before can write to it again, and one that looks later recreates it.
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
from shardq.partitions.asking import ask_map
from shardq.partitions.moving import move_home
from shardq.partitions.parts import Parts
from shardq.partitions.resize import store_map

TIDY_INTERVAL: Final = 10.0
LOOK_INTERVAL: Final = 300.0
"""Seconds between two looks of a client: while messages are left, and at most while only time must pass."""
RETENTION: Final = 3600.0
"""Seconds after the last write for which a drained partition stays at least: a write that got no answer may come again.
"""


def is_due(parts: Parts) -> bool:
    """Return whether the caller shall `tidy` now, beside its calls: a client looks now and then, once at a time."""
    if parts.map.read == parts.map.written:
        return False
    now = parts.whole.clock.monotonic()
    with parts.lock:
        if now < parts.common.tidy_at:
            return False
        parts.common.tidy_at = now + LOOK_INTERVAL  # before it is tried: what fails is not tried again at once
    return True


def tidy(parts: Parts) -> Op[None]:
    """Delete the last partition if it is drained, and its time is over.

    A failure is only logged, such as that of a user who may not delete any.
    """
    try:
        has_changed = yield from _tidy(parts)
    except (Changed, QueueMissing):  # by another client
        has_changed = True
    except ShardqError as error:
        log.warning("a drained partition of queue %r was not removed: %s", parts.whole.keys.name, error)
        return
    if has_changed:
        yield from ask_map(parts.whole, parts.whole.until())
        parts.common.tidy_at = 0.0  # the next one may be drained, too


def _tidy(parts: Parts) -> Op[bool]:
    left, epoch = yield from _left(parts, parts.states[-1])
    if left > 0:
        parts.common.tidy_at = parts.whole.clock.monotonic() + min(max(left, TIDY_INTERVAL), LOOK_INTERVAL)
        return False
    if (yield from _remove(parts, parts.states[0], parts.states[-1], epoch)):
        return True
    yield from move_home(parts, None, parts.states[-1:])  # one may have been stored by an old map
    return False


def _left(parts: Parts, state: QueueState) -> Op[tuple[float, str]]:
    """Return how many seconds a partition has to stay, as far as can be seen; 0 if it may go, or is not there.

    Return its epoch, too, '' if it is not there. It is read before the head is looked at: see `furnish`. (Who does the
    upkeep of this client may forget that of the state meanwhile.)
    """
    seen = yield from outcome_of(sight(state, state.until()))
    if isinstance(seen, ShardqError):
        if not isinstance(seen, QueueMissing):
            raise seen
        state.forget()
        return 0.0, ""
    state.know(seen.view)
    epoch = seen.view.epoch
    if parts.map.towards and parts.map.towards[1] / 1000 > seen.time:
        return TIDY_INTERVAL, epoch  # a resize is under way
    found = yield from numbers(state)
    if found.backlog + found.in_flight + found.delayed + found.dead + found.result_count:
        return TIDY_INTERVAL, epoch
    return max(0.0, seen.written_at + _retention(state) - seen.time), epoch


def _retention(state: QueueState) -> float:
    return max(state.config.dedup_window, RETENTION)


def _remove(parts: Parts, head: QueueState, state: QueueState, epoch: str) -> Op[bool]:
    """Delete a partition that may go, and then take it out of the map. Changed if another client was here.

    Return False if it may not go, as the server sees it.
    """
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
