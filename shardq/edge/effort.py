"""How hard payloads are compressed: harder while the link is what everything waits for.

A slow link leaves the processor idle, and a level that takes up to five times as long makes messages some 15 % smaller.
So the level rises when sending waits for the link and compressing takes a small share of the time, and falls when it
takes most of it, or nothing waits. (The idea is that of `zstd --adapt`.) From then on frames are made with a prefix
where that pays, and where the processor is still idle, those are made at a higher level, too.
"""

from __future__ import annotations

import math
from typing import Final

HARD: Final = 9
"""The level to which it rises. Those between gain little, and those above take several times as long."""
MOST: Final = 2
"""The last step."""
SPAN: Final = 0.5
"""Seconds between two looks."""
IDLE: Final = 0.2
BUSY: Final = 0.85
"""The shares of the time that compressing takes below which the level rises, and above which it falls.

Each step takes about four times as long as the one before.
"""
FULL: Final = 0.5
FREE: Final = 0.1
"""The shares of the time that sending waits: from the first on, the link is full; below the second, it is not."""


class Effort:
    """How hard to compress, in steps: at level *least*; at `HARD`, or with a prefix; with a prefix, and hard.

    Times are seconds of one monotonic clock.
    """

    def __init__(self, least: int) -> None:
        self._least, self._step = least, 0
        self._spent, self._waited, self._since = 0.0, 0.0, -math.inf

    @property
    def level(self) -> int:
        """The level of compression."""
        return max(self._least, HARD) if self._step else self._least

    @property
    def uses_prefix(self) -> bool:
        """Whether frames may be made with what was sent before."""
        return self._step > 0

    @property
    def is_hard(self) -> bool:
        """Whether those frames may take several times as long."""
        return self._step == MOST

    def spent(self, seconds: float) -> None:
        """Note how long it took to compress something."""
        self._spent += seconds

    def waited(self, seconds: float) -> None:
        """Note how long the link did not take what was to be sent."""
        self._waited += seconds

    def look(self, now: float) -> None:
        """Adapt the step, once in each span."""
        if (span := now - self._since) < SPAN:
            return
        spent, waited = self._spent / span, self._waited / span
        if waited < FREE:
            self._step = 0
        elif spent > BUSY:
            self._step = max(0, self._step - 1)
        elif self._step < MOST and waited >= FULL and spent < IDLE:
            self._step += 1
        self._spent, self._waited, self._since = 0.0, 0.0, now
