"""The clock, which is passed to everything that needs the time. Only this module reads the time."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """The clock that shardq uses: `SystemClock`, or `shardq.testing.ManualClock` in tests."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps and continues while the machine is suspended."""
        ...

    def wall(self) -> float:
        """Return seconds since the Unix epoch. For logs, traces and the ages of files, never for deadlines."""
        ...


class SystemClock:
    """The machine's clock. Its monotonic time is CLOCK_BOOTTIME where that exists, since it counts suspended time.

    Each call asks it several times, so both are functions of C, without one of Python around them.
    """

    monotonic = staticmethod(partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))
    wall = staticmethod(time.time)
