"""Change a queue as a whole: look it up, and change it only if nobody else did so meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardq.errors import (
    BackendTimeout,
    DurabilityUnknown,
)
from shardq.ops.queue.opening import T, before_all, new_epoch, require_queue
from shardq.ops.queue.retry import always, retry_replicated
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated


def change_queue(
    state: QueueState, make: Callable[[str, str], Call], until: float
) -> Op[tuple[Any, Underreplicated | None]]:
    """Look the queue up, and change it by the call that *make* makes from its epoch and the next epoch.

    Return the reply, and `Underreplicated` if too few replicas confirmed the change. If the epoch has changed by the
    time the script runs, the script does nothing, and everything starts again. So a change by another client is not
    overwritten, and a repeated call that arrives late does nothing.
    """
    yield from before_all(state.keys, require_queue(state, until))
    while True:
        call = make(state.epoch, new_epoch())
        call.replicas = state.durability.replicas
        # The same call each time, with the same next epoch: by that a repetition sees that it was done.
        reply, underreplicated = yield from retry_replicated(always(call), until, state.clock)
        if reply not in (b"EPOCH", b"NOQUEUE"):
            return reply, underreplicated
        if state.clock.monotonic() > until:
            raise BackendTimeout(f"other clients kept changing queue {state.keys.name!r}: nothing was changed")
        yield from require_queue(state, until)


def check_replicas(state: QueueState, underreplicated: Underreplicated | None, result: T) -> T:
    """Return *result*, or raise DurabilityUnknown with it if too few replicas confirmed the change."""
    if underreplicated is not None:
        raise DurabilityUnknown(f"changed, but {underreplicated.explain(state.durability.replicas)}", result)
    return result
