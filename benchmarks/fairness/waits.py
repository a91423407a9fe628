"""Waits, and their percentiles as text: p50 / p90 / p99 / max, `never` for messages that were not delivered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.report import percentile

BOUND = 3.0
"""The p99 wait of quiet tenants beside 20 floods, in waits under ideal fair queueing: design.md, figures to reach."""

PERCENTILES = "p50 / p90 / p99 / max"
_SHARES = (0.5, 0.9, 0.99, 1.0)
_QUANTILES = [at / 200 for at in range(1, 201)]


@dataclass(slots=True)
class Waits:
    """The waits of messages: in messages that were delivered before them, and in seconds if there is a clock."""

    dequeues: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, found: Iterable[tuple[float, float]]) -> None:
        """Add the waits that `simulate` returned."""
        for dequeues, seconds in found:
            self.dequeues.append(dequeues)
            self.seconds.append(seconds)


def shown(waits: Sequence[float], how: str = "{:,.0f}") -> str:
    """The percentiles of a row's cell."""
    return " / ".join(_text(percentile([*waits] or [math.inf], share), how) for share in _SHARES)


def in_ms(waits: Sequence[float]) -> str:
    """The same in ms."""
    return shown([wait * 1e3 for wait in waits], "{:,.1f}")


def times(waits: Sequence[float], ideal: Sequence[float], least: float = 1.0) -> float:
    """One p99 divided by another, which counts as at least *least*."""
    wait, other = (percentile([*each] or [math.inf], 0.99) for each in (waits, ideal))
    return math.inf if wait == math.inf else wait / max(least, other)


def ratio(waits: Sequence[float], ideal: Sequence[float], least: float = 1.0) -> str:
    """`times`, as text."""
    return _text(times(waits, ideal, least), "{:.2f} x")


def quantiles(waits: Sequence[float]) -> list[float | None]:
    """For JSON and plots: 200 quantiles, None for never."""
    found = (percentile([*waits] or [math.inf], at) for at in _QUANTILES)
    return [None if value == math.inf else value for value in found]


def _text(value: float, how: str) -> str:
    return "never" if value == math.inf else how.format(value)
