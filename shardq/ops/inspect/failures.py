"""Failures of a queue, in groups."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.model.failure import Failure
from shardq.ops.inspect.stats import require_settings
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.failures import failures as read
from shardq.protocol.ids import with_partition


def failures(state: QueueState, timeout: float | None = None) -> Op[list[Failure]]:
    """Return what fails, the worst first. QueueMissing as of `statistics`."""
    call = Call.on(state.keys, "failures")
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if len(reply) == 1:
        require_settings(state)
        return []
    return [replace(each, newest=with_partition(each.newest, state.number)) for each in read(reply)]
