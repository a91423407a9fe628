"""Stored schedules move to the homes of their shard keys, as far as possible: the others are written where they are."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.errors import ShardqError
from shardq.ops.queue.opening import log
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.schedules import stored
from shardq.partitions.parts import Parts


def move_home(parts: Parts, timeout: float | None, states: Sequence[QueueState] = ()) -> Op[None]:
    """Move the schedules of these *states*, all by default, whose home is elsewhere.

    A failure is logged, and the schedule stays.

    Schedules stored by an old map later stay, too: until the next `resize`, or until their partition is to be removed.
    """
    for state in states or parts.states:
        found = yield from outcome_of(stored.listed(state, timeout))
        if isinstance(found, ShardqError):
            log.warning("the schedules of queue %r were not looked at: %s", state.keys.name, found)
            continue
        for each in found:
            home = parts.home_of(each.shard_key)
            if home is not state:
                failed = yield from outcome_of(stored.move(state, home, each.name, timeout))
                if failed is not None:
                    log.warning("schedule %r of queue %r stays there: %s", each.name, state.keys.name, failed)
