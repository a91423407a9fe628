"""The measures of the calls on one queue: how long they took, and how many messages they wrote and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from shardq.errors import OutOfMemory, QueueFull, UniqueConflict
from shardq.model import Received
from shardq.model.failed import class_of, is_a
from shardq.telemetry import measures
from shardq.telemetry.instruments import (
    CONSUMED,
    DEAD_LETTERED,
    DURATION,
    ERROR,
    LEASE_LOST,
    OPERATION,
    OPERATION_TYPE,
    OPERATION_TYPES,
    PICKUP,
    PROCESS,
    QUEUE,
    REASON,
    REDELIVERED,
    REFUSED,
    RETRIED,
    SENT,
    TASK,
    Instrument,
)
from shardq.telemetry.measures import Measured
from shardq.telemetry.sample import Labels
from shardq.telemetry.server import MeasuredServer

Add: TypeAlias = Callable[[float], None]

MAX_KEPT: Final = 1_000
"""Series that are remembered for each queue: to look one up costs more than to add to it."""
BOUNDS: Final = ("max_len", "max_dedup", "max_backlog")
"""The bounds of a queue for which it refuses messages: reasons, as are the other two here."""
OUT_OF_MEMORY: Final = "out of memory"
CONFLICT: Final = "unique"
REFUSALS: Final = (*BOUNDS, CONFLICT, OUT_OF_MEMORY)


class QueueMeter:
    """Adds up what is measured of one queue, of *server*. It is called only while somebody wants that.

    The instruments of each message are found by one look: a call and a tuple for each value cost more than to add it.
    """

    def __init__(self, queue: str, server: MeasuredServer) -> None:
        self.queue = queue
        self._labels: Labels = ((QUEUE, queue), *server.labels)
        self._begun: dict[tuple[str, str, str], Instrument] = {}
        self._places = _Places()

    def begin(self, instrument: Instrument, first: str, second: str = "") -> None:
        """Let the series of an *instrument* with these labels begin at 0: the first value is seen as growth then."""
        self._begun[instrument.name, first, second] = instrument
        if measures.measuring():
            self._of(instrument, first, second)

    def took(self, verb: str, seconds: float, error: BaseException | None = None) -> None:
        """Note that a call of *verb* took so long, and what *error* it ended with."""
        places = self._places if self._places.generation == measures.generation else self._begin_again()
        add = places.calls.get(verb) if error is None else self._of(DURATION, verb, class_of(error)).add
        if add is None:
            add = places.calls[verb] = self._of(DURATION, verb).add
        add(seconds if seconds > 0 else 0.0)

    def wrote(self, seconds: float) -> None:
        """Note that one message was written, in a call that took so long."""
        places = self._places if self._places.generation == measures.generation else self._begin_again()
        if places.written is None:
            places.written = self._of(DURATION, "write").add, self._of(SENT, "write").add
        add_duration, add_sent = places.written
        add_duration(seconds if seconds > 0 else 0.0)
        add_sent(1)

    def sent(self, count: int, error: BaseException | None = None) -> None:
        """Note that *count* messages were written, or could not be for an *error*."""
        if not count:
            return
        self._of(SENT, "write", "" if error is None else class_of(error)).add(count)
        reason = None if error is None else refused_for(error)
        if reason is not None:
            self._of(REFUSED, reason).add(count)

    def sent_each(self, results: Iterable[object]) -> None:
        """Note the result of each message of a batch: its id, or an error."""
        written = 0
        for each in results:
            if isinstance(each, BaseException):
                self.sent(1, each)
            else:
                written += 1
        self.sent(written)

    def consumed(self, seconds: float, rows: Sequence[Received]) -> None:
        """Note what was read by a call that took so long, and for how long it could be read before."""
        places = self._places if self._places.generation == measures.generation else self._begin_again()
        if places.read is None:
            places.read = self._of(DURATION, "read").add, self._of(CONSUMED, "read").add
        add_duration, add_consumed = places.read
        add_duration(seconds if seconds > 0 else 0.0)
        add_consumed(len(rows))
        if len(rows) == 1:
            self._waited(places, rows[0].count > 1).add(rows[0].pickup_delay)
            return
        first = [row.pickup_delay for row in rows if row.count <= 1]
        if first:
            self._waited(places, False).add_each(first)
        if len(first) < len(rows):
            self._waited(places, True).add_each([row.pickup_delay for row in rows if row.count > 1])

    def processed(self, task: str, seconds: float, error: str) -> None:
        """Note that the work on a message of *task* ('' for what is no task) took so long, and its *error*, if any."""
        places = self._places if self._places.generation == measures.generation else self._begin_again()
        add = self._of(PROCESS, task, error).add if error else places.jobs.get(task)
        if add is None:
            add = places.jobs[task] = self._of(PROCESS, task).add
        add(seconds if seconds > 0 else 0.0)

    def counted(self, instrument: Instrument, reason: str, task: str, count: int = 1) -> None:
        """Count messages of *task* ('' for what is no task) for a *reason*."""
        self._of(instrument, reason, task).add(count)

    def labels(self) -> Labels:
        """Return the labels that all values of this queue have."""
        return self._labels

    def _of(self, instrument: Instrument, first: str, second: str = "") -> Measured:
        """Return where values go that have these labels besides the queue's, by the order of `_LABELS`."""
        places = self._places if self._places.generation == measures.generation else self._begin_again()
        return places.kept.get((instrument.name, first, second)) or self._add(places, instrument, first, second)

    def _waited(self, places: _Places, again: bool) -> Measured:
        """Return where pick-up delays go: for messages that were delivered before, or not."""
        return places.delays.get(again) or places.delays.setdefault(
            again, self._of(PICKUP, "true" if again else "false")
        )

    def _begin_again(self) -> _Places:
        """Values go elsewhere from now on: forget where they went."""
        places = self._places = _Places()
        for (_, first, second), instrument in [*self._begun.items()]:
            self._of(instrument, first, second)
        return places

    def _add(self, places: _Places, instrument: Instrument, first: str, second: str) -> Measured:
        if len(places.kept) >= MAX_KEPT:
            places = self._places = _Places()
        names = _LABELS[instrument.name]
        labels = tuple((name, value) for name, value in zip(names, (first, second), strict=False) if value)
        if instrument is PROCESS:
            labels = ((OPERATION, "process"), *labels)
        elif instrument is DURATION and first in OPERATION_TYPES:
            labels = (labels[0], (OPERATION_TYPE, OPERATION_TYPES[first]), *labels[1:])
        found = measures.measured(instrument, self._labels + labels)
        places.kept[instrument.name, first, second] = found
        if instrument is SENT:
            for reason in REFUSALS:  # they begin at 0
                self._of(REFUSED, reason)
        return found


class _Places:
    """Where values of one queue go: `kept` by the instrument and its labels, and some of these by what is at hand."""

    __slots__ = ("calls", "delays", "generation", "jobs", "kept", "read", "written")

    def __init__(self) -> None:
        self.generation = measures.generation
        self.kept: dict[tuple[str, str, str], Measured] = {}
        self.calls: dict[str, Add] = {}
        """How long calls took that did not fail, by their verb."""
        self.jobs: dict[str, Add] = {}
        """How long jobs ran that did not fail, by their task."""
        self.delays: dict[bool, Measured] = {}
        """How long messages waited, by whether they were delivered before."""
        self.written: tuple[Add, Add] | None = None
        """How long a write took, and how many messages it wrote."""
        self.read: tuple[Add, Add] | None = None
        """How long a read took, and how many messages it read."""


def refused_for(error: BaseException) -> str | None:
    """Return why a queue did not take a message; None if *error* says nothing of that."""
    if is_a(error, QueueFull):
        return error.bound if error.bound in BOUNDS else "max_len"
    if is_a(error, OutOfMemory):
        return OUT_OF_MEMORY
    return CONFLICT if is_a(error, UniqueConflict) else None


_LABELS: Final = {
    DURATION.name: (OPERATION, ERROR),
    SENT.name: (OPERATION, ERROR),
    CONSUMED.name: (OPERATION,),
    PROCESS.name: (TASK, ERROR),
    PICKUP.name: (REDELIVERED,),
    RETRIED.name: (REASON, TASK),
    DEAD_LETTERED.name: (REASON, TASK),
    LEASE_LOST.name: (REASON, TASK),
    REFUSED.name: (REASON,),
}
"""The labels that tell series of one queue apart."""
