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
    """What is due at a tick; its own handle. Subclasses say what happens then (`fire`), and leave `__eq__` alone.

    `home` is the bucket that holds the entry, None before and after. Whoever takes the entry out of its bucket decides
    between running and cancelling it; there is no other state that could disagree.
    """

    __slots__ = ("due", "home")

    def __init__(self) -> None:
        self.due = 0
        self.home: Home | None = None

    def fire(self) -> None:
        """Run. The timer calls this once, after it took the entry out of its bucket."""
        raise NotImplementedError

    def leave(self) -> bool:
        """Whether this call took the entry out before it ran; it can be inserted again.

        Any thread, callback, finalizer or signal handler may call it: it takes no lock (but in linked buckets).
        """
        while (home := self.home) is not None:
            if home.pop(self, False):
                self.home = None
                return True
            if self.home is home:  # not moved to another bucket meanwhile: taken out to run, or by another call of this
                break
        return False

    def cancel(self) -> bool:
        """Whether this call kept the entry from running; False if it ran, runs, or was cancelled."""
        return self.leave()

    @property
    def pending(self) -> bool:
        """Whether the entry waits to run."""
        return self.home is not None


class Callback(Entry):
    """An entry that calls `callback(*args)`: what `Timer.call_later` returns."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def fire(self) -> None:
        """Call."""
        if self.callback is not None:
            self.callback(*self.args)

    def cancel(self) -> bool:
        """Whether this call kept the callback from being called; then callback and arguments are released at once."""
        home = self.home
        if home is not None and (home.pop(self, False) or self.leave()):
            self.home = self.callback = None
            self.args = ()
            return True
        return False
