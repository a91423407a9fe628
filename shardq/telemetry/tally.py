"""The measures of this process, in memory and within bounds: counts, sums, gauges, and values by buckets.

Prometheus's text is made of it, and OpenTelemetry's counters read it when they are collected: so to count is to add to
a number. Names come from outside, and each is a series that somebody stores, so each kind has a bounded number of
names, those that came first, and one more for all others.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakSet

from shardq.telemetry.instruments import ERROR, LABELS, QUEUE, TASK, Instrument
from shardq.telemetry.sample import Distribution, Labels, Sample, in_order, joined

MAX_QUEUES: Final = 1_000
MAX_TASKS: Final = 100
MAX_ERRORS: Final = 30
"""Types of errors that each task has names for."""
MAX_SERIES: Final = 10_000
"""Sets of labels of all instruments. Those that come later are counted by the instrument only."""
OTHER: Final = "other"
OTHER_ERROR: Final = "_OTHER"
"""As OpenTelemetry's conventions call errors that have no name."""

Observed = tuple[Instrument, float, Labels]


class TallySource(NamedTuple):
    """Returns, each time when somebody asks, the values that these *instruments* have at this moment."""

    instruments: Collection[Instrument]
    ask: Callable[[], Iterable[Observed]]


class Series:
    """The value of one instrument for one set of labels."""

    __slots__ = ("_bounds", "_counts", "_lock", "_replaces", "_value", "instrument", "labels")

    def __init__(self, instrument: Instrument, labels: Labels, lock: Lock) -> None:
        self.instrument, self.labels, self._lock = instrument, labels, lock
        self._bounds = instrument.buckets
        self._counts = [0] * (len(instrument.buckets) + 1) if instrument.kind == "histogram" else []
        self._replaces = instrument.kind == "gauge"
        self._value: float = 0

    def add(self, value: float) -> None:
        """Add *value* to a counter or a sum, count it in a histogram, or let a gauge have it."""
        with self._lock:
            if self._counts:
                self._counts[bisect_left(self._bounds, value)] += 1
                self._value += value
            elif self._replaces:
                self._value = value
            else:
                self._value += value

    def add_each(self, values: Iterable[float]) -> None:
        """Count each of *values* in a histogram."""
        with self._lock:
            for value in values:
                self._counts[bisect_left(self._bounds, value)] += 1
                self._value += value

    def value(self) -> float | Distribution:
        """Return what it holds."""
        with self._lock:
            return Distribution(tuple(self._counts), self._value) if self._counts else self._value

    def begin_again(self, lock: Lock) -> None:
        """Begin with 0, under another lock: in a child process, where somebody who is not there may hold it."""
        self._lock, self._counts, self._value = lock, [0] * len(self._counts), 0


class Tally:
    """Holds what was added to it, for all instruments. Safe across threads; a process that is forked begins with 0.

    `sources` are asked for what holds at the moment, such as how many jobs run.

    >>> from shardq.telemetry.instruments import QUEUE, RETRIED, REASON
    >>> tally = Tally()
    >>> tally.add(RETRIED, 1, ((QUEUE, "mails"), (REASON, "time limit")))
    >>> [(sample.instrument.text, sample.value) for sample in tally.samples()]
    [('shardq_message_retried_total', 1)]
    """

    def __init__(self) -> None:
        self.sources: list[TallySource] = []
        self._lock, self._names = Lock(), Names()
        self._series: dict[tuple[str, Labels], Series] = {}
        _TALLIES.add(self)

    def begin_again(self) -> None:
        """Begin with 0 in a child process: the parent reports its own counts. It raises nothing.

        >>> tally.begin_again()
        >>> [sample.value for sample in tally.samples()]
        [0]
        """
        self._lock = Lock()
        self.sources = []  # they tell of what the parent does, under its locks
        for each in self._series.values():
            each.begin_again(self._lock)

    def add(self, instrument: Instrument, value: float, labels: Labels) -> None:
        """Add *value*, as `Series.add` does. *labels* are pairs (attribute, value), the queue's first.

        It raises nothing.
        """
        self.series(instrument, labels).add(value)

    def series(self, instrument: Instrument, labels: Labels) -> Series:
        """Return the series of these *labels*: keep it where much is added. Names beyond the bounds share one.

        It raises nothing.

        >>> series = tally.series(RETRIED, ((QUEUE, "mails"), (REASON, "time limit")))
        >>> series.add(2)
        >>> series.value()
        3
        """
        return self._series.get((instrument.name, labels)) or self._bounded(instrument, labels)

    def _bounded(self, instrument: Instrument, labels: Labels) -> Series:
        with self._lock:
            labels = self._names.bounded(labels)
            if len(self._series) >= MAX_SERIES and (instrument.name, labels) not in self._series:
                labels = ()
            key = instrument.name, labels
            found = self._series.get(key)
            if found is None:
                found = self._series[key] = Series(instrument, labels, self._lock)
            return found

    def observed(self, instrument: Instrument) -> Iterator[tuple[float | Distribution, Labels]]:
        """Yield the values of one instrument, with all labels: also those that Prometheus's text leaves out.

        It raises only what its sources raise.

        >>> [value for value, labels in tally.observed(RETRIED)]
        [1]
        """
        for series in self._all():
            if series.instrument is instrument:
                yield series.value(), series.labels
        for source in [*self.sources]:
            if instrument in source.instruments:
                for which, value, labels in source.ask():
                    if which is instrument:
                        yield value, labels

    def samples(self) -> list[Sample]:
        """Return all values, in the order of `INSTRUMENTS`, with the labels that Prometheus's text has.

        It raises only what its sources raise.
        """
        found: dict[tuple[str, Labels], Sample] = {}
        measured = [(each.instrument, each.value(), each.labels) for each in self._all()]
        for source in [*self.sources]:
            measured += source.ask()
        for instrument, value, labels in measured:
            kept = tuple(pair for pair in labels if pair[0] in LABELS)
            key = instrument.name, kept
            before = found.get(key)
            both = value if before is None else joined(instrument, before.value, value)
            found[key] = Sample(instrument, kept, both)
        return in_order(found.values())

    def _all(self) -> list[Series]:
        with self._lock:
            return [*self._series.values()]


class Names:
    """The names that labels have: for each kind those that came first, and one for all others."""

    def __init__(self) -> None:
        self._queues: set[str] = set()
        self._tasks: set[str] = set()
        self._errors: dict[str, set[str]] = {}

    def bounded(self, labels: Labels) -> Labels:
        """Return *labels* with the names that they may have."""
        found, task = [], ""
        for label, name in labels:
            kept = name
            if label == QUEUE:
                kept = _kept(name, self._queues, MAX_QUEUES, OTHER)
            elif label == TASK:
                kept = task = _kept(name, self._tasks, MAX_TASKS, OTHER)
            elif label == ERROR:
                kept = _kept(name, self._errors.setdefault(task, set()), MAX_ERRORS, OTHER_ERROR)
            found.append((label, kept))
        return tuple(found)


def _kept(name: str, names: set[str], most: int, other: str) -> str:
    if name in names or name == other:
        return name
    if len(names) >= most:
        return other
    names.add(name)
    return name


_TALLIES: Final[WeakSet[Tally]] = WeakSet()


def _after_fork() -> None:
    for tally in list(_TALLIES):
        tally.begin_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
