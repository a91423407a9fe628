"""One loud line in the log instead of thousands."""

from __future__ import annotations

import logging
import math
from typing import Final

log = logging.getLogger("shardq")
LOG_INTERVAL: Final = 10.0
"""Seconds between two lines of one kind."""


class Complaints:
    """Lines about messages, by kind: the first at once, and then at most one in ten seconds, with a count."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._more: dict[str, tuple[int, str]] = {}

    def note(self, kind: str, text: str, now: float) -> None:
        """Note one case; *text* is about it."""
        count, _ = self._more.get(kind, (0, ""))
        self._more[kind] = (count + 1, text)
        self.tell(now)

    def tell(self, now: float) -> None:
        """Log what was noted, if it is time."""
        for kind, (count, text) in list(self._more.items()):
            if now - self._told.get(kind, -math.inf) >= LOG_INTERVAL:
                self._told[kind] = now
                del self._more[kind]
                log.warning("edge: %s: %d messages, such as %s", kind, count, text)
