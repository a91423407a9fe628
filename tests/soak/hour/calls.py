"""What callers were told, and whether it is true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from shardq import errors
from tests.soak.hour.bounds import Bounds
from tests.soak.hour.events import Told
from tests.soak.hour.record import WRITES, Record
from tests.soak.hour.spans import Spans
from tests.soak.hour.violation import Kind, Violation

ANSWERS: Final = (
    errors.Empty, errors.QueueFull, errors.QueueNotEmpty, errors.UniqueConflict, errors.Unrouted, errors.NotAvailable,
    errors.LeaseLost,
)  # fmt: skip
"""Errors that tell how things are: no fault is needed for them."""

OPEN: Final = (
    errors.OutcomeUnknown, errors.PartlyDone, errors.PartlyPublished, errors.PartlyWritten, errors.ClosedError,
)  # fmt: skip
"""Errors that leave it open whether a message was stored."""

CAUSES: Final[Mapping[str, str]] = {"OutOfMemory": "memory", "SpoolFull": "disk", "SpoolDamaged": "disk"}
"""The only kind of fault that explains an error, by a word in its name. All others may be of any fault."""


def told_wrongly(record: Record, bounds: Bounds) -> Iterator[Violation]:
    """Calls that ended with what is not so, with no reason, or too late."""
    faults = Faults(record)
    for told, value in _refused_and_delivered(record):
        yield _violation(told, f"{told.outcome} says that nothing was stored, and {value} was delivered")
    for told in record.calls:
        for text in (_unexplained(told, faults), _late(told, faults, bounds)):
            if text:
                yield _violation(told, text)


def _violation(told: Told, text: str) -> Violation:
    where = f" of {told.queue}" if told.queue else ""
    return Violation(
        Kind.TOLD_WRONGLY, f"{told.call}{where} by {told.who}, {told.at:.3f} to {told.answered:.3f}: {text}"
    )


class Faults:
    """When faults may be felt, all together and by their names."""

    def __init__(self, record: Record) -> None:
        healings = record.healings()
        self.all = Spans(each.span for each in healings)
        self._named = {
            word: Spans(each.span for each in healings if word in each.fault.name) for word in CAUSES.values()
        }

    def explain(self, told: Told) -> bool:
        """Whether a fault may be why a call failed."""
        cause = CAUSES.get(told.outcome)
        spans = self._named[cause] if cause else self.all
        return spans.touches(told.at, told.answered)


def _refused_and_delivered(record: Record) -> Iterator[tuple[Told, str]]:
    """Writes that failed for certain, and of which a value came out: no other write of it can have stored it."""
    refused: dict[tuple[str, str], Told] = {}
    stored = set[tuple[str, str]]()
    for told in record.calls:
        if told.call in WRITES and told.outcome != "ok":
            kind = _kind(told.outcome)
            is_open = kind is None or issubclass(kind, OPEN)
            for value in told.values:
                if is_open:
                    stored.add((told.queue, value))
                else:
                    refused[told.queue, value] = told
    for queue, history in record.queues.items():
        for value in {lease.value for lease in history.leases if (queue, lease.value) in refused}:
            if (queue, value) not in stored and value not in history.ids:
                yield refused[queue, value], value


def _unexplained(told: Told, faults: Faults) -> str:
    """What is wrong with an error that has no reason."""
    if told.outcome == "ok":
        return ""
    kind = _kind(told.outcome)
    if kind is None:
        return f"{told.outcome} is no error of shardq's"
    if issubclass(kind, ANSWERS) or faults.explain(told):
        return ""
    waited = told.answered - told.at
    return f"{told.outcome} after {waited:.3f} s of {told.timeout or 0:g}, and there was no fault"


def _late(told: Told, faults: Faults, bounds: Bounds) -> str:
    """What is wrong with an answer that took longer than the caller would wait."""
    waited = told.answered - told.at - faults.all.within(told.at, told.answered)
    if told.timeout is None or waited <= told.timeout + bounds.grace:
        return ""
    return f"{told.outcome} after {waited:.1f} s without faults, and the timeout is {told.timeout:g} s"


def _kind(outcome: str) -> type[errors.ShardqError] | None:
    """The class of an error of shardq's."""
    found = getattr(errors, outcome, None)
    return found if isinstance(found, type) and issubclass(found, errors.ShardqError) else None
