"""The sign of life that a liveness probe looks at: a file that is touched, or a function that is called.

It says that the process goes round, not that it has work or that Redis answers: a probe that fails restarts the
process, which helps against one that hangs, and not against a server that is away.
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
    """Give a sign. Its failure is only logged: it must not end what it is to show."""
    try:
        if isinstance(alive, (str, Path)):
            Path(alive).touch()
        elif alive is not None:
            alive()
    except Exception:
        log.exception("the worker's sign of life failed")


class LivenessThread:
    """Within: signs from a thread, for a process that has no worker yet. The first one is given at once.

    They end when `still_going` was not called for *timeout* seconds.
    """

    def __init__(self, alive: Alive | None, timeout: float, clock: Clock) -> None:
        self._alive, self._timeout, self._clock = alive, timeout, clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._give, name="shardq-liveness", daemon=True)
        self.still_going()

    def still_going(self) -> None:
        """Say that the process still goes round."""
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
