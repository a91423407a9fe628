"""The error of a write with a key in a partition that is its home no more: it was not stored, and is dealt again."""

from __future__ import annotations

from shardq.errors import QueueMissing


class Outdated(QueueMissing):
    """A message with a key was dealt to a partition by a map that is old by now. No caller sees it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} has other partitions by now: write it again")
