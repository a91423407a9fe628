"""Disciplines, the orders in which a queue could deliver its messages, as models without I/O.

A message is a whole number; its tenant is given separately. Every discipline keeps one tenant's messages in order, and
none lets a reader wait while it holds a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable

from shardq.sharding import shard


class Discipline(ABC):
    """A queue, which decides which message is read next."""

    @abstractmethod
    def write(self, tenant: int, *messages: int) -> None:
        """Store messages."""

    @abstractmethod
    def read(self) -> tuple[int, int] | None:
        """The tenant and the message that are delivered next; None when there is none."""

    def write_all(self, tenants: Iterable[int]) -> None:
        """Store one message of each of *tenants*, who may be named several times."""
        for tenant in tenants:
            self.write(tenant, 0)

    def read_many(self, count: int) -> list[tuple[int, int]]:
        """Up to *count* messages, which are delivered together."""
        found: list[tuple[int, int]] = []
        while len(found) < count and (one := self.read()):
            found.append(one)
        return found


class Fifo(Discipline):
    """First in, first out: one queue for all tenants."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, int]] = deque()

    def write(self, tenant: int, *messages: int) -> None:
        self._line.extend((tenant, message) for message in messages)

    def read(self) -> tuple[int, int] | None:
        return self._line.popleft() if self._line else None


class Ring(Discipline):
    """Ideal fair queueing of messages of one size: tenants that have something take turns (Nagle, RFC 970, 1985)."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[int]] = {}  # in the order of the turns

    def __len__(self) -> int:
        return len(self._lines)

    def write(self, tenant: int, *messages: int) -> None:
        self._lines.setdefault(tenant, deque()).extend(messages)

    def read(self) -> tuple[int, int] | None:
        if not self._lines:
            return None
        tenant = next(iter(self._lines))
        line = self._lines.pop(tenant)
        message = line.popleft()
        if line:
            self._lines[tenant] = line
        return tenant, message


class Sharded(Discipline):
    """Shuffle sharding alone, as lua/write.lua and lua/read.lua have it.

    A message is written to the shortest stream of the shard, or to the first of them if several are as short. Reads go
    round the streams from an offset that all readers share.
    """

    def __init__(self, streams: int, per_shard: int, *, salt: str = "") -> None:
        self._streams, self._per_shard, self._salt = streams, per_shard, salt
        self._lines: list[deque[tuple[int, int]]] = [deque() for _ in range(streams)]
        self._ready, self._offset = 0, 0  # a bit per stream that has something; where the next read begins

    def write(self, tenant: int, *messages: int) -> None:
        hand = shard(shard_key(tenant, self._salt), self._streams, self._per_shard)
        for message in messages:
            to = min(hand, key=self._load)
            self._put(to, tenant, message)
            self._ready |= 1 << to

    def read(self) -> tuple[int, int] | None:
        if not self._ready:
            return None
        turn = self._next_turn()
        found = self._take(turn)
        if not self._load(turn):
            self._ready ^= 1 << turn
        return found

    def _next_turn(self) -> int:
        ahead = self._ready >> self._offset << self._offset or self._ready
        turn = (ahead & -ahead).bit_length() - 1
        self._offset = turn + 1 if turn + 1 < self._streams else 0
        return turn

    def _load(self, stream: int) -> int:
        """The length by which the shortest stream is chosen."""
        return len(self._lines[stream])

    def _put(self, stream: int, tenant: int, message: int) -> None:
        self._lines[stream].append((tenant, message))

    def _take(self, stream: int) -> tuple[int, int]:
        return self._lines[stream].popleft()


class Rings(Sharded):
    """Deficit round robin inside each stream (Shreedhar & Varghese, 1995), for messages of one size.

    The tenants of a stream take turns; a write goes where the fewest tenants wait.
    """

    def __init__(self, streams: int, per_shard: int, *, salt: str = "") -> None:
        super().__init__(streams, per_shard, salt=salt)
        self._rings = [Ring() for _ in range(streams)]

    def _load(self, stream: int) -> int:
        return len(self._rings[stream])

    def _put(self, stream: int, tenant: int, message: int) -> None:
        self._rings[stream].write(tenant, message)

    def _take(self, stream: int) -> tuple[int, int]:
        found = self._rings[stream].read()
        assert found
        return found


def shard_key(tenant: int, salt: str) -> str:
    """Another salt deals other shards."""
    return f"{salt}tenant-{tenant}"
