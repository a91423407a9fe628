"""One message that was received and checked, still compressed; and the FIFO of a connection, which holds them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

OVERHEAD = 512
"""About so many bytes a message takes in memory beside its payload, headers and shard key."""


@dataclass(slots=True)
class Received:
    """A message of a client. `size` is that of its payload when decompressed. `dictionary` is the frame's, or None."""

    message_id: bytes
    queue: str
    topic: str
    shard_key: bytes
    tag: str
    headers: dict[str, str]
    delay: int
    payload: bytes
    compressed: bool
    size: int
    releases: bool
    dictionary: Any = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory."""
        return len(self.payload) + sum(map(len, self.headers)) + sum(map(len, self.headers.values())) + OVERHEAD


class Receiver:
    """The FIFO of one connection, bounded by count and bytes. When it is full, the oldest message is dropped."""

    def __init__(self, capacity: int, most_bytes: int) -> None:
        self.capacity, self.most_bytes = capacity, most_bytes
        self.bytes = 0
        self._fifo: deque[Received] = deque()

    def __len__(self) -> int:
        """How many messages it holds."""
        return len(self._fifo)

    def received(self, message: Received) -> list[Received]:
        """Take *message* in. Return those that were dropped for it, the oldest first."""
        dropped = []
        weight = message.weight
        while self._fifo and (len(self._fifo) >= self.capacity or self.bytes + weight > self.most_bytes):
            dropped.append(self._pop())
        self._fifo.append(message)
        self.bytes += weight
        return dropped

    def want_more(self) -> Received | None:
        """Return the oldest message and forget it; None if there is none."""
        return self._pop() if self._fifo else None

    def batch(self, count: int, size: int) -> list[Received]:
        """Return and forget up to *count* of the oldest messages, of *size* bytes in all (or one larger message)."""
        taken: list[Received] = []
        while self._fifo and len(taken) < count and (not taken or self._fifo[0].size <= size):
            taken.append(self._pop())
            size -= taken[-1].size
        return taken

    def _pop(self) -> Received:
        message = self._fifo.popleft()
        self.bytes -= message.weight
        return message
