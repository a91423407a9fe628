"""Everything that operators hold back: all pauses, limits and weights of a queue, and who gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from shardq.model import Control, Controls, LimitControl, WeightControl
from shardq.ops.operate.plans import plans
from shardq.ops.queue.opening import missing
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.bodies import text_or_bytes
from shardq.protocol.limits import pause_of, row_of
from shardq.sharding import key_bytes

FIELDS_A_CALL: Final = 1000

Key = str | bytes


def controls(state: QueueState, shard_key: Key | None = None, timeout: float | None = None) -> Op[Controls]:
    """Return all pauses, limits and weights, or those of one *shard_key* and of the whole queue; and all plans."""
    keys = () if shard_key is None else (shard_key,)
    found = yield from own_controls(state, timeout, keys)
    return replace(found, plans=(yield from plans(state, timeout)))


def own_controls(
    state: QueueState, timeout: float | None = None, keys: Sequence[Key] = (), *, some: bool = False
) -> Op[Controls]:
    """Return what shard keys have of their own, and None for the whole queue where that is paused; no plans.

    With *keys* (at most 50) it is of these alone, in one call. *some* are about `FIELDS_A_CALL` shard keys at most,
    those that one call finds.
    """
    until, cursor = state.until(timeout), b"0"
    names = tuple(map(key_bytes, keys))
    paused: dict[Key | None, Control] = {}
    limits: dict[Key, LimitControl] = {}
    weights: dict[Key, WeightControl] = {}
    while True:
        call = Call.on(state.keys, "limits", (cursor, FIELDS_A_CALL, *names))
        reply = yield from retry_until(always(call), until, state.clock)
        if len(reply) == 1:
            raise missing(state)
        now, whole_queue, who, cursor, rows = reply
        if whole_queue:
            paused[None] = pause_of(float(whole_queue), who)
        for raw, text in zip(rows[::2], rows[1::2], strict=True):
            key, row = text_or_bytes(raw), row_of(text)
            if row.pause:
                paused[key] = row.pause
            if row.limits:
                limits[key] = row.limits
            if row.weight:
                weights[key] = row.weight
        if some or cursor == b"0":
            return Controls(now / 1000, paused, limits, weights, {})
