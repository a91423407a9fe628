"""The timer of an event loop, which takes one handle of the loop for all of its entries.

The loop is a parameter, so this module does not import asyncio: `LoopTimer(asyncio.get_running_loop())`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Unpack

from shardq.arguments import function
from shardq.timing.entry import Entry
from shardq.timing.timer import MAX_WAIT, Settings, Timer


class Handle(Protocol):
    """The result of a loop's `call_later`."""

    def cancel(self) -> None:
        """Keep the call from happening."""
        ...


class TimerLoop(Protocol):
    """The part of an event loop that the timer needs; those of asyncio and uvloop have it."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Handle:
        """Call `callback` in `delay` seconds."""
        ...


class LoopTimer(Timer):
    """A timer whose callbacks run on an event loop. Only the loop's thread may use it; any thread may cancel entries.

    While no entry is pending the timer has no handle, and does not wake the loop. If the loop is closed, an insert
    raises the loop's error, and the entry is not inserted.
    """

    def __init__(self, loop: TimerLoop, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        function("loop.call_later", getattr(loop, "call_later", None))
        self._loop = loop
        self._handle: Handle | None = None
        self._busy = False

    def _wake(self) -> None:
        if not self._busy:  # `_ring` sets the handle once, after all callbacks, however many entries they inserted
            self._arm(self._pause())

    def _arm(self, pause: float | None) -> None:
        """Have the loop call `_ring` in `pause` seconds, instead of when it was to; never, if `pause` is None."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if pause is not None and not self._closed:
            self._handle = self._loop.call_later(min(pause, MAX_WAIT), self._ring)

    def _ring(self) -> None:
        self._busy = True
        try:
            self.run_due()
        finally:  # an error that is no Exception, such as SystemExit, comes out here
            self._busy = False
            self._arm(self._pause())

    def close(self) -> list[Entry]:
        """Stop for good; return the entries that were pending, in order. They will not run."""
        left = super().close()
        self._arm(None)
        return left
