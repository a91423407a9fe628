"""The acks that are piggybacked on a read: they are sent ahead of it, in the same round trip.

Redis runs the ack before the read. So what the ack makes room for, under a window or a cap, is there for the read. The
two fail independently. If only one of them was answered, only the other is tried again, the ack before the read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shardq.errors import BackendError
from shardq.model import Received
from shardq.ops.queue.outcome import ignore_failure
from shardq.ops.queue.riding import with_rider
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import RESENT_ALONE, Batch, Op, Refused, Unanswered
from shardq.ops.read.command import ReadCall
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import Outstanding
from shardq.ops.settle.command import Part, ack_call, ack_parts
from shardq.ops.settle.settle import Results, ack_part, note_acked, unsure_of


class Acks(msgspec.Struct):
    """Deliveries that a read acks. `results` has those that were answered, by lease token.

    `answered_at` is the monotonic time of the last answer, in seconds. `last` is the part that goes out with the read;
    the `earlier` ones are sent before, since one call acks a bounded number.
    """

    last: Part
    earlier: Sequence[Part] = ()
    results: Results = msgspec.field(default_factory=dict)
    answered_at: float = 0.0

    @classmethod
    def of(cls, deliveries: Sequence[Received]) -> Acks:
        """Return what acks these *deliveries*."""
        *earlier, last = ack_parts(deliveries)
        return cls(last, earlier)


def ack_earlier(state: QueueState, acks: Acks, until: float) -> Op[None]:
    """Ack what does not go out with the read."""
    for part in acks.earlier:
        yield from ack_part(state, part, until, acks.results)


def ack_alone(state: QueueState, acks: Acks, until: float, outcome: Any = None) -> Op[None]:
    """Ack what else would go out with a read, without one.

    Continue from the *outcome* of a first try, if it was made.
    """
    if isinstance(outcome, (Refused, Unanswered)):
        yield from ack_part(state, acks.last, until, acks.results, to_count(outcome))
    elif outcome is None:
        yield from ack_part(state, acks.last, until, acks.results)
    else:
        note_acked(state, acks.last, outcome, acks.results)
    acks.answered_at = state.clock.monotonic()


def ack_and_read(
    state: QueueState, acks: Acks, read: ReadCall, until: float, outstanding: Outstanding, known: Any = None
) -> Op[tuple[Any, bool]]:
    """Send the ack and *read* together. Return the outcome of the read, and whether the ack was done before it.

    The outcome is the reply or a failure. If the ack fails for good, the messages that the read was granted are given
    back, and the error of the ack is raised. If the outcomes of both are *known*, nothing is sent.
    """
    part = acks.last
    try:
        # Once: if the driver sent a refused ack again, the read would have run before it, without the room that it
        # makes.
        both = Batch((ack_call(state, part), read.call), until, once=True)
        acked, outcome = known or (yield from with_rider(state, both))
    except GeneratorExit:
        unsure_of(state, [delivery for _, _, delivery in part])
        raise
    # The ack first: if it failed for good, the messages must go back, and that is known only after this.
    in_time = not isinstance(acked, Exception)
    if in_time:
        note_acked(state, part, acked, acks.results)
    else:
        yield from _ack_again(state, part, until, acks.results, acked, outcome, outstanding)
    acks.answered_at = state.clock.monotonic()
    return outcome, in_time


def _ack_again(
    state: QueueState, part: Part, until: float, found: Results, failed: Any, outcome: Any, outstanding: Outstanding
) -> Op[None]:
    try:
        yield from ack_part(state, part, until, found, to_count(failed))
    except BackendError:
        # The caller gets the error of the ack and no messages, so nobody else would give these back.
        if may_have_run(outcome):
            yield from ignore_failure(recover(state, outstanding, until))
        raise


def to_count(failed: Refused | Unanswered) -> Refused | Unanswered | None:
    """Return *failed* if it counts as a failed try; None if the call has only to be sent again alone."""
    return None if isinstance(failed, Refused) and failed.code in RESENT_ALONE else failed


def may_have_run(outcome: Any) -> bool:
    """Return whether the server may have executed the call that had this *outcome*."""
    return not isinstance(outcome, Refused) and (not isinstance(outcome, Unanswered) or outcome.sent)
