"""The receiver's machine: a queue of bounded size between a connection and the storage.

It is the server's machine of pl-rants, "Asynchronous Messaging Over gRPC" (2020). RECEIVER is its table, from which
docs/internals/flow.md draws the diagram. When the queue is full, the oldest message is dropped and the sender learns
the capacity. Nothing is lost by that, since the sender keeps each message until its ack.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from shardq.flow.table import Cell, Table, stays

Message = TypeVar("Message")

RECEIVING: Final = "receiving"
BLOCKED: Final = "blocked"

RECEIVED: Final = "received"
WANT_MORE: Final = "want_more"

ENQUEUE: Final = "enqueue"
DEQUEUE: Final = "dequeue"
REPLACE: Final = "enqueue, drop the oldest, negotiate"

ROOM: Final = "room in the queue"
FULL: Final = "queue full"

RECEIVER: Final[Table] = {
    RECEIVING: {
        RECEIVED: Cell(ENQUEUE, {ROOM: RECEIVING, FULL: BLOCKED}),
        WANT_MORE: stays(RECEIVING, DEQUEUE),
    },
    BLOCKED: {
        RECEIVED: Cell(REPLACE, {ROOM: RECEIVING, FULL: BLOCKED}),
        WANT_MORE: Cell(DEQUEUE, {ROOM: RECEIVING, FULL: BLOCKED}),
    },
}
"""RECEIVING: the queue has room. BLOCKED: it is full, or has no room for the message that came.

With nothing in the queue, want_more takes nothing.
"""


class Receiver(Generic[Message]):
    """A queue of at most *capacity* messages and *size* bytes. One message always fits."""

    def __init__(self, capacity: int, size: int) -> None:
        self.capacity, self.most_bytes = capacity, size
        self.state, self.bytes = RECEIVING, 0
        self._queue: deque[tuple[Message, int]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def received(self, message: Message, size: int) -> list[Message]:
        """Event: a message of *size* bytes came, and is enqueued. Return the oldest ones, dropped to make room for it.

        If any were, the sender is to learn the capacity.
        """
        dropped: list[Message] = []
        if not self._has_room(size):
            self.state = BLOCKED
        while not self._has_room(size):
            oldest, its_size = self._queue.popleft()
            self.bytes -= its_size
            dropped.append(oldest)
        self._queue.append((message, size))
        self.bytes += size
        self._enter(RECEIVED)
        return dropped

    @property
    def oldest(self) -> Message | None:
        """The message that `want_more` would return."""
        return self._queue[0][0] if self._queue else None

    def want_more(self) -> Message | None:
        """Event: the storage wants a message. Return the oldest; None if there is none."""
        if not self._queue:
            return None
        message, size = self._queue.popleft()
        self.bytes -= size
        self._enter(WANT_MORE)
        return message

    def _has_room(self, size: int) -> bool:
        return not self._queue or (len(self._queue) < self.capacity and self.bytes + size <= self.most_bytes)

    def _enter(self, event: str) -> None:
        is_full = len(self._queue) >= self.capacity or self.bytes >= self.most_bytes
        then = RECEIVER[self.state][event].then
        self.state = then.get(FULL if is_full else ROOM, self.state)
