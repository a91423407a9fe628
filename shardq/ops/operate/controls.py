"""What operators hold back: all pauses, limits and weights of a queue, and who gave them."""

from __future__ import annotations

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

PAGE: Final = 1000

Key = str | bytes


def controls(state: QueueState, timeout: float | None = None) -> Op[Controls]:
    """Return all pauses, limits and weights, and all plans."""
    found = yield from own_controls(state, timeout)
    return replace(found, plans=(yield from plans(state, timeout)))


def own_controls(state: QueueState, timeout: float | None = None) -> Op[Controls]:
    """Return what shard keys have of their own, and None for the whole queue where that is paused; no plans."""
    until, cursor = state.until(timeout), b"0"
    paused: dict[Key | None, Control] = {}
    limits: dict[Key, LimitControl] = {}
    weights: dict[Key, WeightControl] = {}
    while True:
        call = Call.on(state.keys, "limits", (cursor, PAGE))
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
        if cursor == b"0":
            return Controls(now / 1000, paused, limits, weights, {})
