"""The clock, injected everywhere; this module alone calls `time`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What shardq needs of a clock; `shardq.testing.ManualClock` is the other one."""

    def monotonic(self) -> float:
        """Seconds that never jump and that count suspended time."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch; for logs only, never for decisions."""
        ...


class SystemClock:
    """The machine's clock: CLOCK_BOOTTIME where there is one, since it counts suspend."""

    _id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic(self) -> float:
        """Seconds since boot, suspend included."""
        return time.clock_gettime(self._id)

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()
