"""The streams that recently had messages for blocked reads.

A blocked read cannot know from where the next message comes, and each stream that it declares costs the server time.
Where few tenants write, messages come out of few streams. So it declares those that it has seen; if that was wrong, the
read finds nothing, is sent again at once with all streams, and blocked reads declare all for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

LEARNING_READS: Final = 64
"""Reads that brought messages and declare all streams, at first and after a wrong guess."""

READS_UNTIL_FORGOTTEN: Final = 1024
"""Reads after which all is learned again, as tenants come and go."""


class Lately:
    """The numbers of these streams, as reads tell them."""

    def __init__(self) -> None:
        self._numbers: set[str] = set()
        self._reads = 0

    def note(self, streams: Sequence[bytes], *, missed: bool) -> None:
        """Note the *streams* of a blocked read's messages, or that it *missed* one that it had not declared."""
        self._reads = 0 if missed else self._reads + bool(streams)
        if self._reads > READS_UNTIL_FORGOTTEN:
            self._numbers, self._reads = set(), 0
        self._numbers.update([stream.decode() for stream in streams])

    def likely(self, streams: int) -> Collection[str]:
        """Return which of the *streams* the next read should declare; nothing if all."""
        known = self._reads >= LEARNING_READS and 2 * len(self._numbers) <= streams
        return self._numbers if known else ()
