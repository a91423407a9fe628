"""What a gateway, or one of its connections, has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the start. `retried` are messages that Redis could not take for now, once for each try."""

    connections: int = 0
    denied: int = 0
    received: int = 0
    bytes: int = 0
    stored: int = 0
    dropped: int = 0
    refused: int = 0
    retried: int = 0
    released: int = 0

    def add(self, other: Counters) -> None:
        """Add the counts of *other*."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def text(self) -> str:
        """The counts of messages, for a line of the log."""
        return (
            f"received {self.received:,} ({self.bytes:,} bytes), stored {self.stored:,}, dropped {self.dropped:,}, "
            f"refused {self.refused:,}"
        )
