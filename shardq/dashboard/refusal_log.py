"""Tells the log of what was refused. Strangers decide how often that is, so lines are bounded."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request

from shardq.clock import Clock
from shardq.dashboard.origin import address_of

MAX_LINES: Final = 30
"""Lines of a minute."""
MINUTE: Final = 60.0
"""Seconds."""
MAX_SHOWN: Final = 200
"""Letters of a path."""

log = logging.getLogger("shardq.dashboard")


class RefusalLog:
    """Writes at most 30 lines a minute, and how many it left out then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._lines = 0
        self._left_out = 0

    def tell(self, request: Request, why: str, who: str = "") -> None:
        """Note that a request was refused, and *why*. Nothing of what it holds is written but its path."""
        now = self._clock.monotonic()
        if now - self._begun >= MINUTE:
            if self._left_out:
                log.warning("refused %s more requests, without a line each", self._left_out)
            self._begun, self._lines, self._left_out = now, 0, 0
        if self._lines >= MAX_LINES:
            self._left_out += 1
            return
        self._lines += 1
        asked = f"{request.method[:10]} {request.url.path[:MAX_SHOWN]}"
        log.warning("refused %r of %s: %s", asked, who or address_of(request) or "a socket", why)
