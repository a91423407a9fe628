"""How fast one person may open screens. Each asks Redis something of its own, if it is of another tenant or message."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from shardq.clock import Clock

MAX_SCREENS: Final = 60
"""Screens that one may open one after the other."""
PAUSE_SECONDS: Final = 0.1
"""Seconds after which one may open another one."""
MAX_PEOPLE: Final = 10_000
"""People who are remembered: those who asked last."""


class Hasty(Exception):
    """Somebody asks too fast. The text is for the person."""


class ScreenPace:
    """How many screens each person has opened lately. They are forgotten one by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """When all screens of a person will be forgotten."""

    def count(self, who: str) -> None:
        """Count a screen of *who*. Hasty if these are too many."""
        now = self._clock.monotonic()
        free_at = max(self._free_at.pop(who, 0.0), now)
        self._free_at[who] = free_at
        if free_at - now > (MAX_SCREENS - 1) * PAUSE_SECONDS:
            raise Hasty("You open screens too fast: wait a second.")
        self._free_at[who] = free_at + PAUSE_SECONDS
        while len(self._free_at) > MAX_PEOPLE:
            self._free_at.popitem(last=False)
