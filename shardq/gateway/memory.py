"""The bytes that a gateway holds for its clients: one budget for the process; each token has a share.

A share grows with what is free, as the project's other bounds do (Choudhury & Hahne 1998, "dynamic queue length
thresholds"): a token is read from while it holds less than a third of what is free. So one alone gets a quarter, two a
fifth each, and who comes new finds room, whatever the others hold. A token at its bound is not read from until some
of its messages are stored; HTTP/2 slows its clients down meanwhile. Nothing is dropped for it.

Bytes that wait in gRPC count, too: the parts of messages. When a share is full of them, one message gets whole after
the other, and takes of what is free. When nothing is, no message gets whole of a token that has some which wait to be
stored. HTTP/2's pings wait behind its part, so that such a connection may end; its client sends again what was lost.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import deque
from typing import Final

from shardq.files import MIB

PROCESS: Final = 96 * MIB
"""Bytes that a gateway takes for itself: 60 MiB before the first client comes, and memory that the allocator cannot
reuse.
"""
CONNECTION: Final = 64 * 1024
"""Bytes that a connection takes by itself."""
STORING: Final = 8 * MIB
"""Bytes of all batches that are being stored, decompressed."""
COPIES_OF_BATCH: Final = 3
"""Copies of such a batch in memory: as it came, as a call, and as what is being sent."""
MIN_MESSAGES: Final = 8
"""Messages of the largest size for which a budget has room."""
TURN: Final = 10.0
"""Seconds that one message has to get whole while its token's share is full of parts."""
WORTH_TRIMMING: Final = 16 * MIB
TRIM_AFTER: Final = (1.0, 5.0, 30.0)
"""Seconds after which gRPC, too, has freed what it held of a connection that left; on a busy machine by the last."""


def budget_of(max_memory: int, max_message: int) -> int:
    """Return how many bytes of messages, answers and so on a process may hold that may take *max_memory* in all."""
    return max_memory - PROCESS - COPIES_OF_BATCH * max(STORING, max_message)


def least_memory(max_message: int) -> int:
    """Return the least `max_memory` for messages of up to *max_message* bytes."""
    return MIN_MESSAGES * max_message - budget_of(0, max_message)


class MemoryBudget:
    """A budget of *most* bytes. `used` is what all hold."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0
        self.waiting: set[MemoryShare] = set()
        self._shares: dict[str, MemoryShare] = {}
        self._given_back = 0

    def share(self, name: str) -> MemoryShare:
        """Return the share of the token *name*."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = MemoryShare(self)
        return share

    def take(self, size: int) -> None:
        """Count *size* bytes that belong to no share."""
        self.used += size

    def give(self, size: int) -> None:
        """Count *size* bytes no longer, and let those read on that have room now."""
        self.used -= size
        self._given_back += size
        if self.waiting:
            for share in [each for each in self.waiting if not each.is_full]:
                share.wake()

    def trim_soon(self) -> None:
        """Give what is free back to the system in a moment, if it is much: a connection has left.

        The C library keeps what was freed, for the next time. One flood would make the process large for ever.
        """
        if self._given_back >= WORTH_TRIMMING:
            self._given_back = 0
            loop = asyncio.get_running_loop()
            for seconds in TRIM_AFTER:
                loop.call_later(seconds, loop.run_in_executor, None, _trim)


class MemoryShare:
    """The memory that one token holds, over all its connections."""

    def __init__(self, memory: MemoryBudget) -> None:
        self.used = self.parts = 0
        self._memory = memory
        self._favoured: tuple[object, float] | None = None
        self._readers: deque[asyncio.Future[None]] = deque()

    @property
    def most(self) -> int:
        """How many bytes it may hold before it is not read from."""
        return (self._memory.most - self._memory.used) // 3

    @property
    def is_full(self) -> bool:
        """Whether nothing may be read. A token that holds no message may read one in any case."""
        return self.used > self.parts and 3 * self.used >= self._memory.most - self._memory.used

    def has_room_for(self, who: object, now: float) -> bool:
        """Whether more may come for a message of *who* that has begun to come.

        When all room is taken by parts, one of them continues, so that it gets whole: each for `TURN` seconds at most.
        """
        free = self._memory.most - self._memory.used
        if 3 * self.used < free:
            return True
        if free <= 0 and self.used > self.parts:
            return False
        if self._favoured is None or self._favoured[1] <= now:
            self._favoured = who, now + TURN
        return self._favoured[0] is who

    def is_done(self, who: object) -> None:
        """The message of *who* is whole, or does not come."""
        if self._favoured is not None and self._favoured[0] is who:
            self._favoured = None

    def take(self, size: int) -> None:
        """Count *size* bytes more."""
        self.used += size
        self._memory.take(size)

    def give(self, size: int) -> None:
        """Count *size* bytes no longer."""
        self.used -= size
        self._memory.give(size)

    def take_part(self, size: int) -> None:
        """Count *size* bytes more of messages that are not read yet; fewer, if it is negative."""
        self.parts += size
        if size > 0:
            self.take(size)
        else:
            self.give(-size)

    async def room(self) -> None:
        """Wait until a message may be read."""
        while self.is_full:
            self._memory.waiting.add(self)
            reader = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            try:
                await reader
            except asyncio.CancelledError:
                if reader.done() and not reader.cancelled():
                    self.wake()  # another one, in its place
                raise

    def wake(self) -> None:
        """Let one reader read on; all of them when half of the room is free.

        Each may read the largest message, so all at once would be too many as soon as a few bytes are free.
        """
        many = 2 * self.used <= self.most
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                if not many:
                    break
        if not self._readers:
            self._memory.waiting.discard(self)


def _trim() -> None:
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # only glibc has it, and only glibc needs it
        library.malloc_trim(0)
