"""Store rows of a bulk write that have no numbers, since another try may bring them in another order.

Within one try each row is stored once: a call that got no answer is made again as it was, and Redis knows it by its
producer sequence. Another try stores all of its rows again, unless they have dedup keys that are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardq.errors import DurabilityUnknown, OutcomeUnknown
from shardq.ops.queue.numbered import number_of
from shardq.ops.queue.outcome import in_doubt
from shardq.ops.queue.retry import TRANSIENT, refuse
from shardq.ops.queue.sequences import NO_SEQUENCE, ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op, Refused, Unanswered, Underreplicated
from shardq.ops.queue.upkeep import upkeep
from shardq.spark.ops.rows import RowPace, Rows, Tries, give_up_error, has_room, rows_call, spans_of

STORED_STAYS = "stored rows stay, and a new try stores all rows of its partition, but for those with a known dedup key"


@dataclass(slots=True, eq=False)
class EntrySpan:
    """The rows from `at` up to before `to`, which one call of `sequence` stores.

    `is_unsure` says whether an earlier try of the call may have been executed.
    """

    at: int
    to: int
    sequence: ProducerSequence
    is_unsure: bool = False


def store_unnumbered(state: QueueState, rows: Rows, pace: RowPace) -> Op[None]:
    """Store *rows*. QueueFull if the queue stayed full for `patience` seconds. Also OutcomeUnknown, BackendErrors."""
    tries, at = Tries(state, pace), 0
    pending: list[EntrySpan] = []
    try:
        while at < len(rows) or pending:
            new = spans_of(state, rows, at, tries.size, pace.calls - len(pending))
            pending += [EntrySpan(*span, state.sequences.take()) for span in new]
            at = new[-1][1] if new else at
            before = _count(pending)
            trouble = yield from _send_calls(state, rows, pending, pace, tries.until)
            if _count(pending) < before:
                tries.advanced()
            doubt = any(span.is_unsure for span in pending)
            if not (yield from in_doubt(doubt, tries.again(trouble))):
                raise _give_up(state, trouble, pace, pending)
    finally:
        for span in pending:
            _free(state, span)
    yield from upkeep(state, state.clock.monotonic())


def _count(pending: Sequence[EntrySpan]) -> int:
    return sum(span.to - span.at for span in pending)


def _send_calls(state: QueueState, rows: Rows, pending: list[EntrySpan], pace: RowPace, until: float) -> Op[str]:
    """Send the calls of *pending* in one round trip, and leave in it what is not stored.

    Return '' or the name of the trouble, such as a bound of the queue.
    """
    if pace.max_backlog and not (yield from has_room(state, pace, until)):
        return "backlog"
    some, trouble = pending[: pace.calls], ""
    underreplicated = None
    outcomes = yield Batch(tuple(_call(state, rows, span, until) for span in some), until)
    for span, outcome in zip(some, outcomes, strict=True):
        reply = outcome.reply if isinstance(outcome, Underreplicated) else outcome
        if isinstance(reply, list) and reply[0] == b"OK":
            pending.remove(span)
            _free(state, span)
            underreplicated = outcome if isinstance(outcome, Underreplicated) else underreplicated
        else:
            trouble = _trouble(state, pending, span, reply) or trouble
    if underreplicated is not None:
        raise DurabilityUnknown(f"rows were stored, but {underreplicated.explain(state.durability.replicas)}", None)
    return trouble


def _call(state: QueueState, rows: Rows, span: EntrySpan, until: float) -> Call:
    number = number_of(state, span.sequence, until)
    return rows_call(state, state.view, rows, span.at, span.to, span.sequence.name, number)


def _trouble(state: QueueState, pending: list[EntrySpan], span: EntrySpan, outcome: Any) -> str:
    """Return the name of the trouble, and prepare the next try of *span*. Raise an error that will not go away."""
    match outcome:
        case [b"FULL", b"max_producers"]:
            span.sequence = NO_SEQUENCE
            return "max_producers"
        case [b"FULL", bound, *_]:
            _split(state, pending, span)
            return str(bound.decode())
        case [b"EPOCH"]:
            return "EPOCH"
        case [*_]:
            raise OutcomeUnknown("a later call of the same producer overtook this write")
        case Refused() if outcome.code not in TRANSIENT:
            refuse(outcome, maybe_done=span.is_unsure)
        case Unanswered():
            span.is_unsure = span.is_unsure or outcome.sent
    return outcome.code if isinstance(outcome, Refused) else str(outcome)


def _split(state: QueueState, pending: list[EntrySpan], span: EntrySpan) -> None:
    """Let fewer rows go into the next call, since not all of them have room. They make it a new call."""
    span.sequence.number += 1
    after = span.at + max(1, (span.to - span.at) // 4)
    if after < span.to:
        pending.insert(pending.index(span) + 1, EntrySpan(after, span.to, state.sequences.take()))
        span.to = after


def _free(state: QueueState, span: EntrySpan) -> None:
    if span.sequence is not NO_SEQUENCE:
        state.sequences.free(span.sequence)


def _give_up(state: QueueState, trouble: str, pace: RowPace, pending: Sequence[EntrySpan]) -> Exception:
    if any(span.is_unsure for span in pending):
        return OutcomeUnknown(
            f"rows of queue {state.keys.name!r} may be stored: no answer came ({trouble}); {STORED_STAYS}"
        )
    return give_up_error(state, trouble, pace, STORED_STAYS)
