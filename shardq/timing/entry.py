"""An entry: what the timer holds, and what its user cancels. It knows its bucket, so both cost O(1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Home(Protocol):
    """Where an entry is until it runs: `pop` is atomic, so exactly one caller takes the entry out."""

    def pop(self, entry: Entry, missing: bool, /) -> bool:
        """Take `entry` out; True if it was in, else `missing`."""
        ...


class Entry:
    """A callback that is due at a tick, and its own handle. Subclasses may override `fire`; never `__eq__`, `__hash__`.

    `home` is the bucket that holds the entry, None before and after. Whoever takes the entry out of its bucket decides
    between running and cancelling it; there is no other state that could disagree.
    """

    __slots__ = ("args", "callback", "due", "home")

    def __init__(self, callback: Callable[..., object] | None = None, args: tuple[Any, ...] = ()) -> None:
        self.callback: Any = callback
        self.args = args
        self.due = 0
        self.home: Home | None = None

    def fire(self) -> None:
        """Run. The timer calls this once, after it took the entry out of its bucket."""
        args = self.args
        if args:
            self.callback(*args)
        else:  # in CPython a call without a star is a third of the work
            self.callback()

    def cancel(self) -> bool:
        """Whether this call kept the entry from running; False if it ran, runs, or was cancelled.

        Any thread, callback, finalizer or signal handler may call it: it takes no lock (but in linked buckets). What a
        cancelled entry referred to is released at once.
        """
        home = self.home
        if home is not None and (home.pop(self, False) or self.leave()):
            self.home = self.callback = None
            self.args = ()
            return True
        return False

    def leave(self) -> bool:
        """As `cancel`, but the entry keeps its callback and can be inserted again."""
        while (home := self.home) is not None:
            if home.pop(self, False):
                self.home = None
                return True
            if self.home is home:  # not moved to another bucket meanwhile: taken out to run, or by another cancel
                break
        return False

    @property
    def pending(self) -> bool:
        """Whether the entry waits to run."""
        return self.home is not None
