"""A window that follows the ratio of the usual round trip to the present one.

While round trips are no longer than usual, the window grows by an allowance for a queue, the root of its size. When
they get longer, it shrinks in proportion (Netflix, concurrency-limits, "Gradient2Limit", 2018). The usual round trip is
a long moving average, which follows when the way becomes longer for good. It falls faster than it rises, since a
present one that is much shorter means that the average was taken under load.
"""

from __future__ import annotations

import math
from typing import Final

LONG_SAMPLES: Final = 600
"""Round trips over which the usual one is an average."""
TOLERANCE: Final = 1.5
"""The window shrinks when a round trip takes longer than the usual one by this factor."""
SMOOTHING: Final = 0.2


class Gradient:
    """The window of Gradient2, between *least* and *most* messages."""

    def __init__(self, *, first: int = 10, least: int = 4, most: int = 10_000) -> None:
        self._least, self._most = least, most
        self._size, self._usual, self._seen = float(first), 0.0, 0

    @property
    def size(self) -> int:
        """How many messages may be in flight."""
        return int(self._size)

    def acked(self, round_trip: float, in_flight: int, now: float) -> None:
        """Take a round trip, and change the size by it."""
        self._seen = min(self._seen + 1, LONG_SAMPLES)
        self._usual += (round_trip - self._usual) / self._seen
        if self._usual > 2 * round_trip:
            self._usual *= 0.95
        if in_flight < self._size / 2:
            return  # a window that nobody fills says nothing
        gradient = max(0.5, min(1.0, TOLERANCE * self._usual / round_trip)) if round_trip > 0 else 1.0
        wanted = self._size * gradient + math.sqrt(self._size)
        step = SMOOTHING / self._size  # so that a window of acks changes it as one did in Netflix's service
        self._set(self._size * (1 - step) + wanted * step)

    def timed_out(self, now: float) -> None:
        """Halve the window."""
        self._set(self._size / 2)

    def _set(self, size: float) -> None:
        self._size = min(max(size, self._least), self._most)
