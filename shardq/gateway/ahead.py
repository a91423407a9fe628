"""How far a connection may run ahead of those who read its messages.

grpc takes what comes until its windows are full, and each message by itself, since it comes by itself. So a flood of
tiny messages would cost the gateway several times what it costs to read those that the rates of its token allow. The
door passes on what is asked for, and a little more. The rest waits in the client's own machine, and comes in chunks.

Messages that wait in grpc count in the share of its token, as all messages do that wait to be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardq.gateway.memory import MemoryShare

MIN_BYTES, MAX_BYTES = 8 * 1024, 128 * 1024
"""Bytes that may wait in grpc for those who read: two messages as the largest of late, within these bounds."""
OVERHEAD: Final = 32
"""Bytes of HTTP/2 that a message has around it, about: frames, and updates of windows. One in a thousand more."""
FRAMING_BYTES: Final = 128
"""Bytes that a message has around it at most: also TLS, and the bytes for the answers. One in 64 more."""
ENDING_BYTES: Final = 512 * 1024
"""Bytes that may be on their way when a call ends: HTTP/2 and the door let these come of one that is not read from."""
PATIENCE: Final = 0.25


class Ahead:
    """The bytes that wait in grpc for the calls of one connection, by estimate. *resume* is called when more may come.

    `unread` is what came so far and was no message.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        self._resume = resume
        self._calls, self._hungry = dict[object, MemoryShare](), set[object]()
        self._there = self._granted = self._doubt = self._extra = 0
        self._most = self._step = MIN_BYTES
        self._share: MemoryShare | None = None
        self.unread = 0
        self._reads = self._seen = 0
        self._due: float | None = None

    @property
    def allowed(self) -> int:
        """How many bytes may come now: none if no call waits for any, and as many as want to if none reads messages."""
        if not self._calls:
            return MAX_BYTES
        return self._most + self._granted - self._there if self._hungry else self._extra

    def begin(self, call: object, share: MemoryShare) -> None:
        """A call begins to read messages, which count in *share*."""
        self._calls[call] = share
        if self._share is None:
            self._count_in(share)

    def end(self, call: object) -> int:
        """A call reads no more. Return how many bytes that nobody will read may be of it: they were on their way."""
        left = min(self.unread, ENDING_BYTES)
        self.forgive(left)
        self._calls.pop(call, None)
        self._hungry.discard(call)
        if self._share is not None:
            self._share.is_done(self)
        self._count_in(next(iter(self._calls.values()), None))
        self._resume()
        return left

    def asks(self, call: object) -> None:
        """A call waits for its next message, or for its client to take answers."""
        self._hungry.add(call)
        self._resume()

    def got(self, call: object, size: int) -> None:
        """It has got one of *size* bytes."""
        self._hungry.discard(call)
        self._reads += 1
        self.forgive(size + FRAMING_BYTES + size // 64)
        self._most = self._step = min(max(2 * size, MIN_BYTES, self._most - self._most // 16), MAX_BYTES)
        took = size + OVERHEAD + size // 1000
        # Had it been there whole, no grant would have been needed: the estimate was wrong.
        self._count(-self._there if self._granted and took <= self._doubt else -min(self._there, took))
        self._granted = 0
        if self._share is not None:
            self._share.is_done(self)
        if 2 * self._there <= self._most:
            self._resume()

    def passed(self, size: int) -> None:
        """This many bytes went to grpc."""
        self.unread += size
        if self._calls:
            self._extra = 0
            self._count(size)

    def forgive(self, size: int) -> None:
        """This many bytes were a message, or may be none."""
        self.unread = max(0, self.unread - size)

    def may_go_on(self, now: float) -> bool:
        """Return whether more may come, though it is ahead: asked again and again, after so long as a read takes.

        If a call waits and has got nothing since this was asked last, what is there is no whole message, or the
        estimate is wrong: more may come, twice as much each time within bounds, if the share has room. If none waits,
        a chunk may come after each `PATIENCE`: behind what was sent it may say that the client has ended the call.
        """
        if self._hungry:
            before, self._seen = self._seen, self._reads
            return before == self._reads and self._grant(now)
        if self._due is None:
            self._due = now + PATIENCE
        if now < self._due:
            return False
        self._due, self._extra = now + PATIENCE, MAX_BYTES
        return True

    def _grant(self, now: float) -> bool:
        if self._share is None or not self._share.has_room_for(self, now):
            return False
        if not self._granted:
            self._doubt = self._there
        self._granted += self._step
        self._step = min(2 * self._step, MAX_BYTES)
        return True

    def _count(self, size: int) -> None:
        self._there += size
        if self._share is not None:
            self._share.take_part(size)

    def _count_in(self, share: MemoryShare | None) -> None:
        """Let what is there count in *share*; with none, nobody asks any more for what is there."""
        there = self._there
        self._count(-there)
        self._share = share
        if share is not None:
            self._count(there)
