"""How many messages may be in flight."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """The size of a window. It hears of each ack and time-out, and changes its size by that."""

    @property
    def size(self) -> int:
        """How many messages may be in flight, at least 1."""
        ...

    def acked(self, round_trip: float, in_flight: int, now: float) -> None:
        """Take the *round_trip* (seconds) of a message that was sent once and was acked *now*.

        *in_flight* messages were in flight just before, this one included.
        """
        ...

    def timed_out(self, now: float) -> None:
        """Note that no ack came in time, or that the connection was lost."""
        ...


class Fixed:
    """A window that never changes."""

    def __init__(self, size: int = 100) -> None:
        self.size = size

    def acked(self, round_trip: float, in_flight: int, now: float) -> None:
        """Change nothing."""

    def timed_out(self, now: float) -> None:
        """Change nothing."""
