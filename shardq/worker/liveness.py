"""The sign of life for a liveness probe: a file that is touched, or a function that is called.

It says that the process does not hang. It does not say that it has work or that Redis answers: a failed probe restarts
the process, which helps if the process hangs, but not if Redis is away.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Self

from shardq.clock import Clock
from shardq.worker.plan import Alive

log = logging.getLogger("shardq")
PULSE = 1.0
"""Seconds between two signs."""


def show_alive(alive: Alive | None) -> None:
    """Give a sign of life. A failure is only logged, because it must not end the worker."""
    try:
        if isinstance(alive, (str, Path)):
            Path(alive).touch()
        elif alive is not None:
            alive()
    except Exception:
        log.exception("the worker's sign of life failed")


class LivenessThread:
    """Within this context a thread gives signs of life, for a process that has no worker yet; the first one at once.

    They stop when `still_going` was not called for *timeout* seconds.
    """

    def __init__(self, alive: Alive | None, timeout: float, clock: Clock) -> None:
        self._alive, self._timeout, self._clock = alive, timeout, clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._give, name="shardq-liveness", daemon=True)
        self.still_going()

    def still_going(self) -> None:
        """Report that the process does not hang."""
        self._last = self._clock.monotonic()

    def __enter__(self) -> Self:
        show_alive(self._alive)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PULSE)

    def _give(self) -> None:
        while not self._over.wait(PULSE):
            if self._clock.monotonic() - self._last < self._timeout:
                show_alive(self._alive)
