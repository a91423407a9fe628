"""A thread beside the timer's, for functions of users, which may take as long as they like."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("shardq")


class Aside:
    """Runs functions one after the other in a daemon thread, which starts on first need and ends when all are done.

    Calling it takes a lock for a moment, and never waits for a function. Errors are logged.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all functions; in a forked child, where the thread does not exist, and the parent runs them."""
        self._lock = threading.Lock()
        self._todo: deque[Callable[[], object]] = deque()
        self._running = False

    def __call__(self, function: Callable[[], object]) -> None:
        """Run *function* soon."""
        with self._lock:
            self._todo.append(function)
            if not self._running:
                threading.Thread(target=self._run, name="shardq-callbacks", daemon=True).start()
                self._running = True

    def wait(self, seconds: float) -> bool:
        """Return whether all functions that were handed over so far have run.

        Wait for them up to this many *seconds*.
        """
        with self._lock:
            if not self._running:
                return True
        done = threading.Event()
        self(done.set)
        return done.wait(seconds)

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            self._running = bool(self._todo)
            return self._todo.popleft() if self._todo else None

    def _run(self) -> None:
        while (function := self._next()) is not None:
            contextvars.Context().run(run_logged, function)  # what one sets the next one does not see


def run_logged(function: Callable[[], object]) -> None:
    """Run *function* and log its error, also one that would end the thread: other callbacks must run, too."""
    try:
        function()
    except BaseException:
        log.exception("a callback failed")
