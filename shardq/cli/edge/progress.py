"""The progress of a sending: shown on a terminal while it continues, with the reason of a wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeVar

from shardq.cli.output import say, say_over
from shardq.errors import BackendTimeout, SpoolFull

if TYPE_CHECKING:
    from shardq.edge import Edge
    from shardq.edge.spool import SpoolCounts

T = TypeVar("T")
DRAW_INTERVAL = 0.25
LOOK_INTERVAL = 0.05


class ProgressLine:
    """Shows on stderr, if that is a terminal and stdout is none, what was put, stored and refused, and how fast.

    `patience` is for how many seconds no ack may come before it is given up.
    """

    def __init__(self, edge: Edge, patience: float) -> None:
        self._edge, self._patience = edge, patience
        self._before, self._begun = edge.status().spool, time.monotonic()
        self._over = threading.Event()
        self._is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        self._thread = threading.Thread(target=self._show, name="shardq-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._is_shown:
            self._thread.join()
            say(self._text(), file=sys.stderr, flush=True)

    def put(self, put: Callable[[], T]) -> T:
        """Put something into the spool by calling *put*, when there is room. SpoolFull if there is none in time."""
        known, until = _done(self._edge.status().spool), time.monotonic() + self._patience
        while True:
            try:
                return put()
            except SpoolFull:
                if (done := _done(self._edge.status().spool)) != known:
                    known, until = done, time.monotonic() + self._patience
                elif time.monotonic() >= until:
                    raise
            time.sleep(LOOK_INTERVAL)

    def flush(self) -> None:
        """Wait until the spool is empty, as long as acks come. BackendTimeout, MessageRefused."""
        while True:
            before = _done(self._edge.status().spool)
            try:
                self._edge.flush(self._patience)
                return
            except BackendTimeout:
                if _done(self._edge.status().spool) == before:
                    raise

    def _show(self) -> None:
        while not self._over.wait(DRAW_INTERVAL):
            say_over(self._text())

    def _text(self) -> str:
        now, before = self._edge.status().spool, self._before
        stored, refused = now.acked - before.acked, now.refused + now.dropped - before.refused - before.dropped
        rate = stored / max(time.monotonic() - self._begun, 1e-3)
        return (
            f"{now.accepted - before.accepted:,} in the spool, {stored:,} stored ({rate:,.0f}/s), "
            f"{refused:,} refused, {now.waiting:,} wait "
        )


def _done(counts: SpoolCounts) -> int:
    """How many messages do not wait any more."""
    return counts.acked + counts.refused + counts.dropped
