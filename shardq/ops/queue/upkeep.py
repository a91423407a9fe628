"""The upkeep that other calls do now and then: the expiry of keys, drained streams, old letters and results."""

from __future__ import annotations

from typing import Any, Final

from shardq.errors import (
    ShardqError,
)
from shardq.ops.queue.opening import log, new_epoch, reopen
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op

OLD_LETTERS: Final = 100
"""Dead letters that are deleted by age in one call."""


SWEPT_TTL: Final = 100.0
"""Seconds that results are treated as lasting if they were kept before a queue stopped keeping any."""


def upkeep(state: QueueState, now: float) -> Op[None]:
    """Do rare upkeep with a call: renew the expiry of all keys, and stop reading streams that a resize has drained.

    A failure is only logged, since it does not change the outcome of the call.
    """
    try:
        yield from _upkeep(state, now)
    except ShardqError as error:  # such as QueueMissing, where the queue was deleted meanwhile
        log.warning("upkeep of queue %r failed and will be tried again: %s", state.keys.name, error)


def _upkeep(state: QueueState, now: float) -> Op[None]:
    if state.config.ttl is not None and now >= state.touch_at:
        # A quarter: some calls may fail before any key expires.
        state.touch_at = now + state.config.ttl / 4
        yield from touch(state, now + state.timeout)
    if state.wanted < state.streams and now >= state.shrink_at:
        state.shrink_at = now + 1.0
        yield from shrink(state, now + state.timeout)
    # The next time is noted first: what fails, for want of a right, say, is not tried again in each call.
    if state.config.dead_ttl is not None and now >= state.bury_at:
        state.bury_at = now + min(60.0, state.config.dead_ttl / 10)
        if (yield from delete_old_letters(state, now + state.timeout)):
            # There may be more: the next call continues, instead of one that takes long.
            state.bury_at = now
    if (state.config.result_ttl is not None or state.view.has_results) and now >= state.sweep_at:
        state.sweep_at = now + min(60.0, (state.config.result_ttl or SWEPT_TTL) / 10)
        if (yield from forget_results(state, now + state.timeout)):
            state.sweep_at = now


def touch(state: QueueState, until: float) -> Op[Any]:
    """Renew the expiry of all keys of the queue, as its `ttl` says. Without a `ttl` they never expire."""
    keys = state.keys
    others = (key for key in keys.fixed if key != keys.meta)
    call = Call.on(keys, "touch", rest=(*others, *map(keys.stream, range(state.streams))))
    yield from retry_until(always(call), until, state.clock)


def delete_old_letters(state: QueueState, until: float) -> Op[bool]:
    """Delete some dead letters that are older than the queue's `dead_ttl`. Return whether there may be more."""
    # Nobody learns how many there were, so the call has no number.
    call = Call.on(state.keys, "delete_dead", (state.client, "-", "ttl", OLD_LETTERS, 0))
    _, told = yield from retry_until(always(call), until, state.clock)
    return bool(told.endswith(b"|1"))


def forget_results(state: QueueState, until: float) -> Op[bool]:
    """Forget some results that were kept long enough, as calls that keep some do. Return whether there may be more."""
    call = Call.on(state.keys, "forget_results")
    return bool((yield from retry_until(always(call), until, state.clock)))


def shrink(state: QueueState, until: float) -> Op[None]:
    """Stop reading those streams above the wanted number that are empty."""
    view = state.view  # read once, since another thread may replace it meanwhile
    surplus = tuple(map(state.keys.stream, range(view.wanted, view.streams)))
    call = Call.on(state.keys, "shrink", (view.epoch, new_epoch()), rest=surplus)
    streams_left = yield from retry_until(always(call), until, state.clock)
    if int(streams_left) != view.streams:
        yield from reopen(state, until)
