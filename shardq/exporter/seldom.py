"""Lines of the log that strangers can cause: they may be few, however often that happens."""

from __future__ import annotations

import math
from typing import Final

from shardq.clock import Clock

LOG_INTERVAL: Final = 60.0
"""Seconds between two of these lines."""


class Seldom:
    """Says when a line may be logged.

    >>> from shardq.testing import ManualClock
    >>> seldom = Seldom(ManualClock())
    >>> seldom.is_due(), seldom.is_due()
    (True, False)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = -math.inf

    def is_due(self) -> bool:
        """Say whether the log may have another line, which is logged then."""
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + LOG_INTERVAL
        return True
