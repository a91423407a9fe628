"""A call that has a number in a producer sequence: at most one of its tries has an effect.

Redis remembers its answer, so a repetition gets the same. A call whose effect or answer would be another one the second
time goes this way: a write, a cancel, a redrive.

the verb answers        what follows
EPOCH                   the queue is looked up, and the call made again with the same number
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
from shardq.ops.queue.sequences import EXTRA_SECONDS, LATE_SECONDS, NO_SEQUENCE, REPEATED_FOR, ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated

Maker: TypeAlias = Callable[[ProducerSequence], Call]
Opener: TypeAlias = Callable[[QueueState, float], Op[None]]


class NumberedAnswer(NamedTuple):
    """The reply to a call whose outcome is known, and `Underreplicated` if too few replicas confirmed it."""

    reply: Any
    underreplicated: Underreplicated | None


def answered(
    state: QueueState,
    sequence: ProducerSequence,
    make: Maker,
    until: float,
    made: Call | None = None,
    opens: Opener = reopen,
) -> Op[NumberedAnswer]:
    """Repeat the call that *make* makes of a sequence until it is answered. The first one is *made* already, if given.

    Where the queue has changed, it *opens* it.

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
                yield from in_doubt(doubt, opens(state, until))
            case [b"FULL", b"max_producers"] if doubt:
                text = "a try got no answer, and Redis cannot recognize it, since it remembers too many writers"
                raise OutcomeUnknown(text)
            case [b"FULL", b"max_producers"]:
                # No try has run, so there is none to recognize. From here on one at most may run: `remembered` is 0.
                sequence = NO_SEQUENCE
            case [b"STALE"]:
                raise OutcomeUnknown("a later call of the same producer overtook this one")
            case _:
                return NumberedAnswer(reply, underreplicated)


def numbered(state: QueueState, make: Maker, until: float) -> Op[NumberedAnswer]:
    """Do as `answered`, for a call of a sequence of its own."""
    sequence = state.sequences.take()
    try:
        return (yield from answered(state, sequence, make, until))
    finally:
        # Also after no answer: the next call has a higher number, and a copy of this one that comes late is STALE.
        state.sequences.free(sequence)


def spelled(state: QueueState, sequence: ProducerSequence, until: float) -> str:
    """Count this call in its *sequence*. Return its number as verbs read it (`read_number` in lua/producers.lua)."""
    return f"{number_of(state, sequence, until)} {sequence.name}" if sequence.name else "-"


def number_of(state: QueueState, sequence: ProducerSequence, until: float) -> str:
    """Count this call in its *sequence*. Return its number, and for how many ms Redis must remember it.

    Redis must remember it for as long as a repeated try may still arrive.
    """
    # Redis forgets a sequence when no try can arrive any more; to forget it earlier would store a message twice.
    sequence.numbered_at = now = state.clock.monotonic()
    lasts = min(max(0.0, until - now), REPEATED_FOR) + LATE_SECONDS
    # As `check_call` in lua/producers.lua does it.
    sequence.moves = sequence.kept_until - now < lasts + EXTRA_SECONDS
    if sequence.moves:
        sequence.kept_until = now + 2 * lasts
    return f"{sequence.number}|{round(lasts * 1000)}"
