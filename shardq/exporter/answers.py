"""One answer for all who ask at about the same time: a question is asked once, and again when the answer is old."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from shardq.clock import Clock
from shardq.errors import ShardqError

T = TypeVar("T")


class HttpAnswer(Generic[T]):
    """The last answer to a question, which *ask* asks: for *fresh* seconds from its arrival all get it, or its error.

    Those that come while it is asked wait for that answer. Between two askings there are at least *fresh* seconds. One
    may come early, if it is known that the answer has changed; then the next comes later by as much.
    """

    def __init__(self, ask: Callable[[], T], fresh: float, clock: Clock) -> None:
        self._ask, self._fresh, self._clock = ask, fresh, clock
        self._lock = threading.Lock()
        self._at: float | None = None
        self._error: ShardqError | None = None
        self.value: T | None = None
        """The last good answer, however old."""
        self.good_at: float | None = None
        """When that arrived, by the clock's monotonic time."""

    def get(self, *, early: bool = False) -> T:
        """Return a fresh answer; *early*, a new one, unless the one before was early. Raise its error if it has one."""
        with self._lock:
            age = math.inf if self._at is None else self._clock.monotonic() - self._at
            if age >= self._fresh or (early and age >= 0):
                self._renew(late=self._fresh - age)
            if self._error is not None:
                # Each gets one of its own: raised in many threads, one error would collect all their tracebacks.
                raise copy.copy(self._error) from self._error.__cause__
            return self.value  # type: ignore[return-value]  # without an error there is one

    @property
    def age(self) -> float | None:
        """Seconds since the last good answer; None: there was none yet."""
        return None if self.good_at is None else max(0.0, self._clock.monotonic() - self.good_at)

    def _renew(self, late: float) -> None:
        """Ask. For *late* seconds more than usual nobody may ask again."""
        self._at = None
        try:
            self.value, self._error = self._ask(), None
            self.good_at = self._clock.monotonic()
        except ShardqError as error:
            self._error = error.with_traceback(None)
        self._at = self._clock.monotonic() + max(0.0, late)
