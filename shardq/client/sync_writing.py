"""The waits and the results of a writer for threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from shardq.client.base import BaseClient
from shardq.drivers.permits import MAX_WAIT
from shardq.model import Written


class WriteFuture(Future[Written]):
    """The future of one message: its id, or the error with which its write ended."""

    asked = False
    error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # what is accepted is not taken back

    def result(self, timeout: float | None = None) -> Written:
        """Return the message's id, or raise its error; TimeoutError after *timeout* seconds without an outcome."""
        self.asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the message's error, None if it was written; TimeoutError after *timeout* seconds."""
        self.asked = True
        return super().exception(timeout)

    def fail(self, error: Exception, note: Callable[[WriteFuture], object]) -> None:
        """End with *error*, once `note` was called with this."""
        self.error = error
        note(self)
        self.set_exception(error)


class Turn:
    """One thread waits for this until another calls `come`."""

    def __init__(self) -> None:
        self._ticket = Lock()
        self._ticket.acquire()

    def come(self) -> None:
        """End the wait."""
        self._ticket.release()

    def wait(self) -> None:
        """Wait until it has come."""
        self._ticket.acquire()

    def wait_until(self, until: float, client: BaseClient) -> None:
        """Wait until it has come, or the clock of *client* says *until*."""
        clock = client.clock
        while not self._ticket.acquire(timeout=min(MAX_WAIT, max(0.0, until - clock.monotonic()))):
            if until <= clock.monotonic():
                return
