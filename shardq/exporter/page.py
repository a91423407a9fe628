"""The page of numbers that Prometheus reads: made once a second, however many ask."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Final

from shardq.clock import Clock
from shardq.exporter.listener import HttpRequest, Reply
from shardq.exporter.text import CONTENT_TYPE, text_of
from shardq.telemetry.sample import Sample

FRESH_SECONDS: Final = 1.0
"""Seconds for which those who ask share a page."""


class MetricsPage:
    """A route of the listener with what *samples* returns. Its errors are shared with nobody.

    >>> from shardq.clock import SystemClock
    >>> page = Page(list, SystemClock())
    >>> page(Request("/metrics", "", {}, "")).body
    b''
    """

    def __init__(self, samples: Callable[[], Iterable[Sample]], clock: Clock) -> None:
        self._samples, self._clock = samples, clock
        self._lock = threading.Lock()
        self._page, self._until = Reply(b"", CONTENT_TYPE), -math.inf

    def __call__(self, _: HttpRequest) -> Reply:
        """Return the page. A request that comes while it is made waits for it."""
        with self._lock:
            if self._clock.monotonic() >= self._until:
                self._page = Reply(text_of(self._samples()), CONTENT_TYPE).encoded()
                self._until = self._clock.monotonic() + FRESH_SECONDS
            return self._page
