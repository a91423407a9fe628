"""A token bucket: the amount that may be taken at once, and how much more each second.

The source is Turner 1986, "New directions in communications": the leaky bucket as a meter.
"""

from __future__ import annotations

import math

from shardq.clock import Clock


class TokenBucket:
    """Holds *most* units at first and at most; *rate* more come each second."""

    def __init__(self, most: float, rate: float, clock: Clock) -> None:
        self._most, self._rate, self._clock = most, rate, clock
        self._level, self._at = most, clock.monotonic()

    @property
    def left(self) -> float:
        """How many units may be taken now; less than 0 after more was owed than there was."""
        now = self._clock.monotonic()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    @property
    def debt(self) -> float:
        """In how many seconds what is owed is paid; 0.0 if nothing is."""
        return max(0.0, -self.left / self._rate)

    def take(self, amount: float = 1) -> bool:
        """Take *amount* and return True; if less is left, take nothing. Less than 0 is given back."""
        if self.left < amount:
            return False
        self._level = min(self._most, self._level - amount)
        return True

    def owe(self, amount: float, within: float = math.inf) -> None:
        """Take *amount* that was used already, whether or not it is left: not more than is paid *within* seconds."""
        self._level = min(self.left, max(self.left - amount, -within * self._rate))
