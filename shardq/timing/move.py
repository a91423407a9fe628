"""The move of an entry from one bucket to another, and how a cancel finds an entry that is being moved.

The clock moves an entry when a bucket of an overflow wheel expires. It takes the entry out of the old bucket, and then
sets `Entry.bucket` to the new one. A cancel between these two steps looks for the entry in the old bucket, in vain. So
the clock holds a lock during both steps, and a cancel that did not find its entry waits for the lock and looks again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shardq.platforms import after_fork

if TYPE_CHECKING:
    from shardq.timing.buckets import Bucket
    from shardq.timing.entry import Entry


class Move:
    """The one move that is under way in this process: of `entry`, to the bucket `target`.

    Only the thread that holds `lock` may move an entry. The lock is reentrant, because a finalizer or a signal handler
    may cancel the very entry that its own thread is moving.
    """

    __slots__ = ("entry", "lock", "target")

    entry: Entry | None
    target: Bucket | None

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the move, with its lock."""
        self.lock = threading.RLock()
        self.entry = self.target = None

    def intercept(self, entry: Entry) -> bool:
        """Wait until no other thread moves entries; True if this thread was moving `entry`, and it is out of the wheel.

        The answer is wrong if another thread has cancelled `entry` within the same few instructions: then both succeed.
        """
        with self.lock:
            if self.target is None or self.entry is not entry or not self.target.pop(entry, False):
                return False
            self.entry = None
            return True


MOVE = Move()
after_fork(MOVE.reset)  # the thread that moved an entry does not exist in the child
