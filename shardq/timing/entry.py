"""An entry: the timer holds it, and its user cancels it. It knows its bucket, so both cost O(1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardq.timing.move import MOVE

if TYPE_CHECKING:
    from shardq.timing.buckets import Bucket


class Entry:
    """Something that is due at a tick. Subclasses define `fire`, and must not define `__eq__` or `__hash__`.

    `bucket` is the bucket that holds the entry, None before and after. To take the entry out of its bucket is atomic,
    and the one that took it out decides what becomes of it: the clock runs it, a caller of `leave` or `cancel` does
    not.
    """

    __slots__ = ("bucket", "due")

    def __init__(self) -> None:
        self.due = 0
        self.bucket: Bucket | None = None

    def fire(self) -> None:
        """Run. The timer calls this once, after it took the entry out of its bucket."""
        raise NotImplementedError

    def leave(self) -> bool:
        """Take the entry out before it runs; True if this call did. The entry can be inserted again then.

        Any thread, callback, finalizer or signal handler may call it. It takes no lock, unless another thread is just
        moving the entry to another bucket, or taking it out: then it waits until no entry is being moved.
        """
        while (bucket := self.bucket) is not None:
            if bucket.pop(self, False) or MOVE.intercept(self):
                self.bucket = None
                return True
            if self.bucket is bucket:  # it was not moved: the clock took it out to run it, or another caller did
                break
        return False

    def cancel(self) -> bool:
        """Keep the entry from running; True if this call did, False if it ran, runs, or was cancelled before."""
        return self.leave()

    @property
    def pending(self) -> bool:
        """Whether the entry waits to run."""
        return self.bucket is not None


class Callback(Entry):
    """An entry that calls `callback(*args)`: what `Timer.call_later` returns."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def fire(self) -> None:
        """Call the callback."""
        if self.callback is not None:
            self.callback(*self.args)

    def cancel(self) -> bool:
        """Keep the callback from being called; True if this call did. Callback and arguments are released at once."""
        bucket = self.bucket
        if bucket is not None and (bucket.pop(self, False) or self.leave()):
            self.bucket = self.callback = None
            self.args = ()
            return True
        return False
