"""How hard payloads are compressed: harder while the link is what everything waits for, less while the processor is.

The usual level makes small messages a fourth smaller than a fast one, in a few microseconds more. Where a machine does
little else than compress, the level falls. On a full link, which leaves the processor idle, frames are made with a
prefix where that pays, and where the processor is still idle, those are made at a higher level, too. (The idea is that
of `zstd --adapt`.)
"""

from __future__ import annotations

import math
from typing import Final

USUAL_LEVEL: Final = 9
"""The usual level, to which lower ones rise. Those between gain little, and those above take several times as long."""
FAST_LEVEL: Final = 3
"""The level while the processor is the limit. It takes a fifth of the time."""
LOWEST_STEP, HIGHEST_STEP = -1, 2
"""The first step, and the last."""
LOOK_INTERVAL: Final = 0.5
"""Seconds between two looks."""
IDLE: Final = 0.2
BUSY_SHARES: Final = 0.85
"""The shares of the time that compressing takes below which the level rises, and above which it falls.

Each step takes about four times as long as the one before.
"""
FULL: Final = 0.5
FREE: Final = 0.1
"""The shares of the time that sending waits: from the first on, the link is full; below the second, it is not."""


class Effort:
    """How hard to compress, in steps: fast; as usual; with a prefix, at `USUAL_LEVEL` also without; with one, and hard.

    A *level* that is asked for is the usual one, and the least. Times are seconds of one monotonic clock.
    """

    def __init__(self, level: int | None = None) -> None:
        self._usual, self._least = (USUAL_LEVEL, FAST_LEVEL) if level is None else (level, level)
        self._step = 0
        self._spent, self._waited, self._since = 0.0, 0.0, -math.inf

    @property
    def level(self) -> int:
        """The level of compression."""
        if self._step > 0:
            return max(self._usual, USUAL_LEVEL)
        return self._usual if self._step == 0 else self._least

    @property
    def uses_prefix(self) -> bool:
        """Whether frames may be made with what was sent before."""
        return self._step > 0

    @property
    def is_hard(self) -> bool:
        """Whether those frames may take several times as long."""
        return self._step == HIGHEST_STEP

    def spent(self, seconds: float) -> None:
        """Note how long it took to compress something."""
        self._spent += seconds

    def waited(self, seconds: float) -> None:
        """Note how long the link did not take what was to be sent."""
        self._waited += seconds

    def look(self, now: float) -> None:
        """Adapt the step, once in each span."""
        if (span := now - self._since) < LOOK_INTERVAL:
            return
        spent, waited = self._spent / span, self._waited / span
        step = self._step if waited >= FREE else min(self._step, 0)
        if spent > BUSY_SHARES:
            step -= 1
        elif step < 0 and spent < IDLE:
            step = 0
        elif 0 <= step < HIGHEST_STEP and self._rises(step, spent, waited):
            step += 1
        self._step = max(LOWEST_STEP, step)
        self._spent, self._waited, self._since = 0.0, 0.0, now

    def _rises(self, step: int, spent: float, waited: float) -> bool:
        """Whether the link is full enough for the next step, and the processor idle enough."""
        if (
            step == 0 and self._usual >= USUAL_LEVEL
        ):  # a fast frame with a prefix takes half as long as a hard one without
            return waited >= FREE
        return waited >= FULL and spent < IDLE
