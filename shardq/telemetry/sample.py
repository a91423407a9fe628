"""A value of an instrument, with the labels that it was measured for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from shardq.telemetry.instruments import INSTRUMENTS, Instrument

Labels = tuple[tuple[str, str], ...]
"""Attribute (as of `instruments`) and value, in the order of the instrument's own."""


class Distribution(NamedTuple):
    """The contents of a histogram: *counts* of its buckets (one more than bounds), and the sum of all values."""

    counts: tuple[int, ...]
    total: float


class Sample(NamedTuple):
    """One value: of one instrument, for one set of labels (the queue's among them)."""

    instrument: Instrument
    labels: Labels
    value: float | Distribution


def joined(instrument: Instrument, one: float | Distribution, other: float | Distribution) -> float | Distribution:
    """Return two values of an instrument as one: their sum, or of a gauge the larger."""
    if isinstance(one, Distribution) and isinstance(other, Distribution):
        counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
        return Distribution(counts, one.total + other.total)
    if isinstance(one, Distribution) or isinstance(other, Distribution):
        return one
    return max(one, other) if instrument.kind == "gauge" else one + other


def in_order(samples: Iterable[Sample]) -> list[Sample]:
    """Return samples in the order of `INSTRUMENTS`."""
    return sorted(samples, key=lambda sample: _ORDER[sample.instrument.name])


_ORDER: Final = {each.name: at for at, each in enumerate(INSTRUMENTS)}
