"""The measures of several processes, as if it were one: those of a worker, and those that run its handlers.

Each tells what it has counted since it began. When one ends, its counts stay, so that no counter falls; its gauges,
such as running jobs, are gone with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from shardq.telemetry.instruments import INSTRUMENTS
from shardq.telemetry.sample import Distribution, Labels, Sample, in_order, joined
from shardq.telemetry.tally import Names

MAX_SERIES: Final = 10_000
"""Sets of labels of all instruments that are kept of processes that have ended."""
_BY_NAME: Final = {each.name: each for each in INSTRUMENTS}
_LASTING_KINDS: Final = frozenset({"counter", "histogram"})

_Told = tuple[str, tuple[tuple[str, str], ...], int | float, tuple[int, ...]]
_decoder: Final = msgspec.msgpack.Decoder(list[_Told])


class Family:
    """The samples of this process (*own*), and of its members.

    >>> from shardq.telemetry.instruments import CONSUMED
    >>> family = Family(list)
    >>> first, second = family.join(), family.join()
    >>> first.tell([Sample(CONSUMED, (), 2)])
    >>> second.tell([Sample(CONSUMED, (), 3)])
    >>> first.end()
    >>> [sample.value for sample in family.samples()]
    [5]
    """

    def __init__(self, own: Callable[[], Iterable[Sample]]) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._told: dict[Member, Sequence[Sample]] = {}
        self._ended: dict[tuple[str, Labels], Sample] = {}
        self._names = Names()

    def join(self) -> Member:
        """Return a member that has told nothing yet."""
        member = Member(self)
        with self._lock:
            self._told[member] = ()
        return member

    def _tell(self, member: Member, samples: Sequence[Sample]) -> None:
        with self._lock:
            if member in self._told:
                self._told[member] = samples

    def _end(self, member: Member) -> None:
        with self._lock:
            for sample in self._told.pop(member, ()):
                if sample.instrument.kind in _LASTING_KINDS:
                    _add(self._ended, self._bounded(sample))

    def samples(self) -> list[Sample]:
        """Return the samples of all together."""
        own = self._own()
        with self._lock:
            found = dict(self._ended)
            for samples in (own, *self._told.values()):
                for sample in samples:
                    _add(found, self._bounded(sample))
        return in_order(found.values())

    def _bounded(self, sample: Sample) -> Sample:
        return sample._replace(labels=self._names.bounded(sample.labels))


class Member:
    """One process of a *family*, which began to measure when it joined."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def tell(self, samples: Sequence[Sample]) -> None:
        """Take what it has measured since it began. Values after its end are late, and are not taken."""
        self._family._tell(self, samples)

    def end(self) -> None:
        """It has ended: keep its counts, and forget all else of it."""
        self._family._end(self)


def _add(found: dict[tuple[str, Labels], Sample], sample: Sample) -> None:
    key = sample.instrument.name, sample.labels
    if key not in found and len(found) >= MAX_SERIES:
        key = sample.instrument.name, ()
        sample = sample._replace(labels=())
    before = found.get(key)
    found[key] = (
        sample if before is None else sample._replace(value=joined(sample.instrument, before.value, sample.value))
    )


_family: Family | None = None


def begin_family(own: Callable[[], Iterable[Sample]]) -> Family:
    """Let processes that this one starts tell what they measure, and return where."""
    global _family
    _family = Family(own)
    return _family


def end_family() -> None:
    """Take no more of what other processes measure."""
    global _family
    _family = None


def current_family() -> Family | None:
    """Return where processes that this one starts tell what they measure; None if nobody wants it."""
    return _family


def packed(samples: Iterable[Sample]) -> bytes:
    """Return samples as bytes, for another process of the same version."""
    told: list[_Told] = []
    for instrument, labels, value in samples:
        if isinstance(value, Distribution):
            told.append((instrument.name, labels, value.total, value.counts))
        else:
            told.append((instrument.name, labels, value, ()))
    try:
        return msgspec.msgpack.encode(told)
    except UnicodeEncodeError:  # a name has what UTF-8 lacks
        return msgspec.msgpack.encode([(name, _scrubbed(labels), *rest) for name, labels, *rest in told])


def _scrubbed(labels: Labels) -> Labels:
    return tuple((label, value.encode(errors="replace").decode()) for label, value in labels)


def unpacked(raw: bytes) -> list[Sample]:
    """Return the samples that another process has packed; [] if it did not.

    >>> from shardq.telemetry.instruments import SLOTS
    >>> unpacked(packed([Sample(SLOTS, (), 4)]))[0].value
    4
    """
    try:
        told = _decoder.decode(raw)
    except msgspec.MsgspecError:  # what runs there is the user's own code
        return []
    found = []
    for name, labels, value, counts in told:
        instrument = _BY_NAME.get(name)
        if instrument is not None and len(counts) == (len(instrument.buckets) + 1 if instrument.buckets else 0):
            found.append(Sample(instrument, labels, Distribution(counts, value) if counts else value))
    return found
