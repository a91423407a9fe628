"""The counts of a gateway, or of one of its connections, so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from shardq.datasink import messages


@dataclass(slots=True)
class Counters:
    """Counts since the start. `retried` are messages that Redis could not take for now, once for each try.

    `throttled` is for how many seconds a token's rates held connections back. `refused_by` counts by reason.
    """

    connections: int = 0
    denied: int = 0
    received: int = 0
    bytes: int = 0
    stored: int = 0
    dropped: int = 0
    refused: int = 0
    retried: int = 0
    released: int = 0
    throttled: float = 0.0
    refused_by: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counters) -> None:
        """Add the counts of *other*."""
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def refuse(self, reason: int) -> None:
        """Count a message that was refused for *reason*, a number of `messages.Reason`."""
        self.refused += 1
        self.refused_by[messages.Reason.values_by_number[reason].name] += 1

    def text(self) -> str:
        """The counts of messages, for a line of the log."""
        return (
            f"received {self.received:,} ({self.bytes:,} bytes), stored {self.stored:,}, dropped {self.dropped:,}, "
            f"refused {self.refused:,}"
        )
