"""The timer of an event loop: one handle of the loop for all its entries.

The loop is handed in, so nothing here imports asyncio: `LoopTimer(asyncio.get_running_loop())`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Unpack

from shardq.timing.entry import Entry
from shardq.timing.timer import LONGEST_WAIT, Settings, Timer


class Handle(Protocol):
    """What `call_later` of a loop returns."""

    def cancel(self) -> None:
        """Keep the call from happening."""
        ...


class Loop(Protocol):
    """What is needed of an event loop; asyncio's and uvloop's have it."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Handle:
        """Call `callback` in `delay` seconds."""
        ...


class LoopTimer(Timer):
    """A timer whose callbacks run on an event loop. As the loop's own `call_later`, it is for the loop's thread only.

    Cancelling an entry is not: any thread may. A timer with nothing pending has no handle, and never wakes the loop.
    What the loop refuses because it is closed is not inserted.
    """

    def __init__(self, loop: Loop, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self._loop = loop
        self._handle: Handle | None = None
        self._busy = False

    def _wake(self) -> None:
        if not self._busy:  # else it is armed afterwards, once for all that the callbacks inserted
            self._arm(self._pause())

    def _arm(self, pause: float | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if pause is not None and not self._closed:
            self._handle = self._loop.call_later(min(pause, LONGEST_WAIT), self._ring)

    def _ring(self) -> None:
        self._busy = True
        try:
            self.run_due()
        finally:  # the loop may end with what a callback raised, such as SystemExit
            self._busy = False
            self._arm(self._pause())

    def close(self) -> list[Entry]:
        """Stop for good; the entries that were pending, in order. They will not run."""
        left = super().close()
        self._arm(None)
        return left
