"""Lines of the log about what others cause: one in ten seconds for each kind and whom it is about."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import Final

from shardq.clock import Clock

log = logging.getLogger("shardq.gateway")
PERIOD: Final = 10.0
MAX_NOTICES: Final = 1000
"""Notices of each kind that are told apart at a time. Beyond, those of a kind are counted as one."""


@dataclass(slots=True)
class _NoticeTold:
    until: float
    left_out: int = 0


class Notices:
    """Says what happens, and how many lines were left out since the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], _NoticeTold] = {}

    def say(self, kind: str, who: str, text: str) -> None:
        """Log *text*, unless a line of this *kind* about *who* was logged within `PERIOD`: then only count it."""
        key = (kind, who) if (kind, who) in self._told or len(self._told) < MAX_NOTICES else (kind, "others")
        if (told := self._told.get(key)) is not None and told.until > self._clock.monotonic():
            told.left_out += 1
            return
        if told is not None:
            self._sum_up(key, told)
        self._told[key] = _NoticeTold(self._clock.monotonic() + PERIOD)
        log.warning("%s", text)

    async def run(self) -> None:
        """Sum up again and again."""
        while True:
            await asyncio.sleep(PERIOD)
            self.sum_up(self._clock.monotonic())

    def sum_up(self, until: float = math.inf) -> None:
        """Log what was left out of periods that are over by then, and forget these."""
        for key, told in list(self._told.items()):
            if told.until <= until:
                self._sum_up(key, told)
                del self._told[key]

    def _sum_up(self, key: tuple[str, str], told: _NoticeTold) -> None:
        if told.left_out:
            log.warning("%s, %s: %d more within %.0f seconds", *key, told.left_out, PERIOD)
