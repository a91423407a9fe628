"""A call that has a number in a producer's sequence: of all its tries one at most has an effect.

the verb answers        what follows
EPOCH                   the queue is looked up, and the call made anew with the same number
FULL max_producers      if no try may have run, once more without a sequence; else the outcome is unknown
STALE                   the outcome is unknown
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from shardq.errors import OutcomeUnknown
from shardq.ops.queue.opening import reopen
from shardq.ops.queue.outcome import in_doubt
from shardq.ops.queue.retry import Same, retry_replicated
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated
from shardq.ops.write.command import FORGOTTEN, REPEATED_FOR, ProducerSequence

Maker: TypeAlias = Callable[[ProducerSequence], Call]


class Answer(NamedTuple):
    """The reply to a call whose outcome is known, and `Underreplicated` if too few replicas confirmed it."""

    reply: Any
    underreplicated: Underreplicated | None


def answered(
    state: QueueState, sequence: ProducerSequence, make: Maker, until: float, made: Call | None = None
) -> Op[Answer]:
    """Repeat the call that *make* makes of a sequence until it is answered. The first one is *made* already, if given.

    Raises OutcomeUnknown if nobody can say whether it was done, and what `retry_until` raises.
    """
    doubt = False  # whether a try for an earlier epoch may have been executed
    while True:
        call = Same(made or make(sequence))
        # The driver may have made the first try long before it came here: the machine may have slept meanwhile.
        begun_at = sequence.numbered_at if made else None
        made, remembered = None, REPEATED_FOR if sequence.name else 0.0
        tries = retry_replicated(call, until, state.clock, remembered=remembered, begun_at=begun_at)
        reply, underreplicated = yield from in_doubt(doubt, tries)
        doubt = doubt or call.repeated
        match reply:
            case [b"EPOCH"]:
                state.forget()
                yield from in_doubt(doubt, reopen(state, until))
            case [b"FULL", b"max_producers"] if doubt:
                text = "a try got no answer, and Redis cannot recognize it, since it remembers too many writers"
                raise OutcomeUnknown(text)
            case [b"FULL", b"max_producers"]:
                # No try has run, so there is none to recognize. From here on one at most may run: `remembered` is 0.
                sequence = FORGOTTEN
            case [b"STALE"]:
                raise OutcomeUnknown("a later call of the same producer overtook this write")
            case _:
                return Answer(reply, underreplicated)
