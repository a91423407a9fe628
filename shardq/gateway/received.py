"""One message that was received and checked, still compressed; and the FIFO of a connection, which holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardq.flow import Receiver

OVERHEAD_BYTES = 512
"""Bytes that a message takes in memory besides its payload, headers and shard key, about."""
HEADER_BYTES = 130
"""Bytes that a header takes besides its letters, about."""


@dataclass(slots=True)
class Envelope:
    """All of a message but its id and its payload, checked. The messages of a batch may share one.

    If it `needs_parents`, it may only go to queues that count by parents. `weight` is about how many bytes a message
    with it takes in memory, without its payload.
    """

    queue: str
    topic: str
    shard_key: bytes
    tag: str
    headers: dict[str, str]
    delay: int
    needs_parents: bool = False
    weight: int = field(init=False)

    def __post_init__(self) -> None:
        """Weigh it."""
        headers = sum(map(len, self.headers)) + sum(map(len, self.headers.values())) if self.headers else 0
        self.weight = headers + HEADER_BYTES * len(self.headers) + OVERHEAD_BYTES


@dataclass(slots=True)
class Incoming:
    """A message of a client. `size` is that of its payload when decompressed. `dictionary` is the frame's, or None.

    `weight` is about how many bytes it takes in memory.
    """

    message_id: bytes
    envelope: Envelope
    payload: bytes
    compressed: bool
    size: int
    releases: bool
    dictionary: Any = None
    weight: int = field(init=False)

    def __post_init__(self) -> None:
        """Weigh it."""
        self.weight = len(self.payload) + self.envelope.weight


class Fifo(Receiver[Incoming]):
    """The FIFO of one connection: the receiver's machine, and batches out of it."""

    def batch(self, count: int, size: int) -> list[Incoming]:
        """Return and forget up to *count* of the oldest messages, of *size* bytes together (or one larger message)."""
        taken: list[Incoming] = []
        while len(taken) < count and (oldest := self.oldest) is not None:
            if taken and oldest.size > size:
                break
            self.want_more()
            taken.append(oldest)
            size -= oldest.size
        return taken
