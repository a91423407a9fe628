"""How hard payloads are compressed: harder while the link is what everything waits for.

A slow link leaves the processor idle, and a level that takes up to five times as long makes messages some 15 % smaller.
So the level rises when messages wait for the link and compressing takes a small share of the time, and falls when it
takes most of it. (The idea is that of `zstd --adapt`.)
"""

from __future__ import annotations

import math
from typing import Final

HARD: Final = 9
"""The level to which it rises. Those between gain little, and those above take several times as long."""
SPAN: Final = 1.0
"""Seconds between two looks."""
IDLE: Final = 0.2
BUSY: Final = 0.85
"""The shares of the time that compressing takes below which the level rises, and above which it falls."""


class Effort:
    """The level of compression, *least* or `HARD`. Times are seconds of one monotonic clock."""

    def __init__(self, least: int) -> None:
        self._least, self.level = least, least
        self._spent, self._since, self._blocked = 0.0, -math.inf, False

    def spent(self, seconds: float) -> None:
        """Note how long it took to compress a payload."""
        self._spent += seconds

    def look(self, now: float, *, is_blocked: bool) -> None:
        """Adapt the level. *is_blocked* says whether messages wait for the window; all looks of a span must say so."""
        self._blocked = self._blocked and is_blocked
        if now - self._since < SPAN:
            return
        share = self._spent / (now - self._since)
        if not self._blocked or share > BUSY:
            self.level = self._least
        elif share < IDLE:
            self.level = max(self._least, HARD)
        self._spent, self._since, self._blocked = 0.0, now, True
