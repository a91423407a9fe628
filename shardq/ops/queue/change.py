"""Change a queue as a whole: look it up, and change it only if nobody else did so meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from shardq.errors import (
    BackendTimeout,
    DurabilityUnknown,
    OutcomeUnknown,
)
from shardq.ops.queue.opening import T, new_epoch, require_queue
from shardq.ops.queue.outcome import in_doubt, may_have_happened
from shardq.ops.queue.retry import Same, retry_replicated
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated

Agree: TypeAlias = Callable[[], Op[bool]]
"""Looks at the queue, and returns whether what a caller was shown still holds."""


class Changed(Exception):
    """The facts that a caller was shown do not hold any more, so nothing was changed."""


def change_queue(
    state: QueueState, make: Callable[[str, str], Call], until: float, agree: Agree | None = None
) -> Op[tuple[Any, Underreplicated | None]]:
    """Look the queue up, and change it by the call that *make* makes from its epoch and the next epoch.

    Return the reply, and `Underreplicated` if too few replicas confirmed the change. If the epoch has changed by the
    time the script runs, the script does nothing, and everything starts again. So a change by another client is not
    overwritten, and a repeated call that arrives late does nothing.

    *agree* looks at the queue before each try. Each pause, limit, weight and plan moves the epoch, so what it has seen
    holds when the script runs. Changed if it does not agree.
    """
    yield from require_queue(state, until)
    doubt = False  # whether a try for an earlier epoch may have made the change
    while True:
        epoch = state.epoch  # other calls of this client may look the queue up while `agree` looks
        if agree is not None and not (yield from in_doubt(doubt, agree())):
            if doubt:
                raise OutcomeUnknown("an earlier try of this call got no answer; it may be what has changed the queue")
            raise Changed
        call = make(epoch, new_epoch())
        call.replicas = state.durability.replicas
        # The same call each time, with the same next epoch: by that a repetition sees that it was done.
        same = Same(call)
        reply, underreplicated = yield from in_doubt(doubt, retry_replicated(same, until, state.clock))
        if reply not in (b"EPOCH", b"NOQUEUE"):
            if doubt and reply != b"OK":
                raise OutcomeUnknown(
                    f"an earlier try of this call got no answer and may have happened; since then queue "
                    f"{state.keys.name!r} was changed, and now it refuses the change"
                )
            return reply, underreplicated
        doubt = doubt or same.repeated
        if state.clock.monotonic() > until:
            kept_changing = BackendTimeout(f"other clients kept changing queue {state.keys.name!r}")
            raise may_have_happened(kept_changing) if doubt else kept_changing
        yield from in_doubt(doubt, require_queue(state, until))


def check_replicas(state: QueueState, underreplicated: Underreplicated | None, result: T) -> T:
    """Return *result*, or raise DurabilityUnknown with it if too few replicas confirmed the change."""
    if underreplicated is not None:
        raise DurabilityUnknown(f"changed, but {underreplicated.explain(state.durability.replicas)}", result)
    return result
