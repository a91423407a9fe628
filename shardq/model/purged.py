"""The messages that the purge of one tenant removed."""

from __future__ import annotations

import msgspec


class Purged(msgspec.Struct, frozen=True):
    """How many messages of a tenant were removed: `waiting`, `delayed`, and `dead` letters.

    `left_in_flight` are those that somebody was working on when the purge ended, and which were not `cancelled`.

    `Queue.purge` returns one.
    """

    waiting: int
    delayed: int
    dead: int
    left_in_flight: int
    cancelled: int = 0

    @property
    def total(self) -> int:
        """How many messages are gone: all but those in flight."""
        return self.waiting + self.delayed + self.dead
