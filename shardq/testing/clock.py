"""A clock that moves only when `advance` is called."""

from __future__ import annotations

import threading


class ManualClock:
    """A `shardq.clock.Clock` for tests; `wall` is its wall time at the start (Unix seconds). Safe across threads."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = wall
        self._passed = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._passed

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return self._wall + self._passed

    def advance(self, seconds: float) -> None:
        """Move the clock by *seconds*; ValueError if that is negative."""
        if seconds < 0:
            raise ValueError("a clock never goes back")
        with self._lock:
            self._passed += seconds
