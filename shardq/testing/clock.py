"""A clock that `advance` moves."""

from __future__ import annotations

import threading
from typing import Final

from shardq.arguments import flag
from shardq.arguments import seconds as checked_seconds
from shardq.clock import SystemClock

MAX_MOVE: Final = 1e12


class ManualClock:
    """A `shardq.clock.Clock` for tests; `wall` is its wall time at the start (Unix seconds). Safe across threads.

    It stands still until `advance` is called; or it also *runs*: then real seconds pass as well, as a Worker wants it,
    whose reads wait.

    ConfigError for a bad time.

    >>> clock = ManualClock(wall=1_700_000_000)
    >>> clock.advance(30)
    >>> clock.monotonic(), clock.wall()
    (30.0, 1700000030.0)
    """

    def __init__(self, wall: float = 1_700_000_000.0, *, runs: bool = False) -> None:
        self._wall = checked_seconds("wall", wall, 0, MAX_MOVE)
        self._passed = 0.0
        self._began = SystemClock().monotonic() if flag("runs", runs) else None
        self._lock = threading.Lock()

    @property
    def runs(self) -> bool:
        """Whether real seconds pass as well."""
        return self._began is not None

    def monotonic(self) -> float:
        """Seconds since this clock was made. It raises nothing."""
        return self._passed if self._began is None else self._passed + SystemClock().monotonic() - self._began

    def wall(self) -> float:
        """Seconds since the Unix epoch. It raises nothing."""
        return self._wall + self.monotonic()

    def advance(self, seconds: float) -> None:
        """Move the clock by *seconds*; ConfigError if that is negative: a clock never goes back."""
        checked_seconds("what a clock, which never goes back, moves on", seconds, 0, MAX_MOVE)
        with self._lock:
            self._passed += seconds
