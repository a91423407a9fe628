"""One connection at the door: who is there, and the bytes that go both ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shardq.gateway.ahead import Ahead
from shardq.gateway.bucket import TokenBucket
from shardq.gateway.strangers import CALLS, MORE_BYTES, Address, Strangers

if TYPE_CHECKING:
    from shardq.gateway.door import Door

CHUNK_BYTES: Final = 64 * 1024
"""Bytes that are read at once, and the most that wait in the door for one side of a connection."""
STRANGER_BYTES: Final = 2 * 1024
"""The same for a connection without a token, so that others of its address have their turn."""
PATIENCE: Final = 10.0
"""Seconds that a connection may be open without a token."""
CHECKED_SECONDS: Final = 70.0
"""The same after a health check was answered: those who ask every minute use one connection."""
LINGER_SECONDS: Final = 1.0
"""Seconds that the other side has to end the connection, too, after one has."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connection comes from, and among which strangers it counts. `peer` is for logs: 203.0.113.5:4711."""

    peer: str
    address: Address
    strangers: Strangers


class Visitor:
    """One connection, by its *ends*: the client's and grpc's. Without a call that has a token it ends at `until`.

    `calls` are those without a token that it may begin while one with a token is under way.
    """

    def __init__(self, door: Door, name: str, ends: tuple[socket.socket, socket.socket], origin: Origin) -> None:
        self.name, self.peer, self.address = name, origin.peer, origin.address
        self._strangers = origin.strangers
        self.until = door.clock.monotonic() + PATIENCE
        self._door = door
        self._outer, self._inner = outer, inner = ends
        self._calls, self.calls = 0, TokenBucket(CALLS, CALLS / 5, door.clock)
        self._paid_at = door.clock.monotonic()
        self._bytes, self._was_known, self.has_called = 0, False, False
        self.ahead = Ahead(self._resume)
        self._in = _Pipe(outer, inner, self._allowed, self._took, self._ended)
        self._out = _Pipe(inner, outer, lambda: CHUNK_BYTES, lambda _: None, self._ended)
        self._closed = False

    @property
    def is_stranger(self) -> bool:
        """Whether no call with a token is under way here."""
        return self._calls == 0

    def open(self) -> None:
        """Pass bytes on from now on. Others may have to make room for this one."""
        self._in.open()
        self._out.open()
        self.address.connections += 1
        self._strangers.add(self, self.address)
        while (other := self._strangers.beyond(self.address)) is not None:
            self._door.turn_away(other.address)
            other.close()

    def enter(self) -> None:
        """A call with a token begins."""
        self._strangers.remove(self, self.address)
        if not self._was_known:
            self._give_back()
        self._calls += 1
        self._in.open()

    def leave(self) -> None:
        """A call with a token is over."""
        self._calls -= 1
        if self._calls == 0 and not self._closed:
            self.may_stay(PATIENCE)
            self._strangers.add(self, self.address)

    def may_stay(self, seconds: float) -> None:
        """Let it be open for so long without a token, unless one side has ended it."""
        if not (self._in.has_ended or self._out.has_ended):
            self.until = self._door.clock.monotonic() + seconds

    def refill(self) -> None:
        """Read again, if more bytes may come by now."""
        self._in.open()

    def close(self) -> None:
        """End the connection at once."""
        if self._closed:
            return
        self._closed = True
        self._door.pace.discard(self)
        for pipe in (self._in, self._out):
            pipe.close()
        for end in (self._outer, self._inner):
            end.close()
        self._strangers.remove(self, self.address)
        self.address.connections -= 1
        self._door.is_gone(self)
        if self._bytes and not self.has_called:
            self._door.note_silent(self)

    def _give_back(self) -> None:
        """Its bytes as a stranger count no more: it has shown a token.

        Nor does what comes between two of its calls: much of a call that was ended may still be on its way.
        """
        self._was_known = True
        self._strangers.sent(self.address, -self._bytes)
        self.address.newcomers.take(-1)

    def _resume(self) -> None:
        """Read again, if it was stopped for being ahead."""
        if self in self._door.pace:
            self._door.pace.discard(self)
            self._in.open()

    def _allowed(self) -> int:
        if not self._was_known:
            return min(STRANGER_BYTES, self._strangers.may_send(self.address))
        if (allowed := self.ahead.allowed) <= 0:
            self._door.pace.add(self)
        return min(CHUNK_BYTES, allowed)

    def _took(self, size: int) -> None:
        self._door.passed += size
        self.ahead.passed(size)
        if not self._was_known:
            self._bytes += size
            self._strangers.sent(self.address, size)
        elif self.ahead.unread > self._most_unread and not self._is_paid():
            self._door.note_empty(self)
            self.close()

    def _is_paid(self) -> bool:
        """Whether what came, and was no message, is no more than may come by now.

        grpc takes frames of any kind, as fast as they come. TLS hides from the door which they are.
        """
        now = self._door.clock.monotonic()
        self.ahead.forgive(int((now - self._paid_at) * MORE_BYTES))
        self._paid_at = now
        return self.ahead.unread <= self._most_unread

    @property
    def _most_unread(self) -> int:
        """How many bytes may have come that are no message yet: one of each call may be on its way."""
        return self._door.most_unread * max(1, self._calls)

    def _ended(self) -> None:
        """One direction has ended; the other one has a moment to end, too."""
        if self._in.is_over and self._out.is_over:
            self.close()
        else:
            self.until = self._door.clock.monotonic() + LINGER_SECONDS


class _Pipe:
    """One direction: bytes from *source* go to *target*. While *target* takes nothing, nothing is read.

    If *target* takes nothing any more for good, the bytes are read and dropped. A socket that is closed with bytes
    unread resets the connection, and with it goes what the other direction has under way, such as why a call ended.
    """

    def __init__(
        self,
        source: socket.socket,
        target: socket.socket,
        allowed: Callable[[], int],
        took: Callable[[int], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self._target = source, target
        self._allowed, self._took, self._ended = allowed, took, ended
        self._rest = memoryview(b"")
        self._reads = False
        self._is_deaf = False  # the target takes nothing any more
        self.is_over = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing is passed on any more."""
        return self.is_over or self._is_deaf

    def open(self) -> None:
        """Read if nothing waits to be sent, and if it may."""
        if not self._reads and not self._rest and not self.is_over and self._allowed() > 0:
            self._reads = True
            self._loop.add_reader(self._source, self._read)

    def close(self) -> None:
        """Do nothing more."""
        self.is_over = True
        self._stop_reading()
        if self._rest:
            self._loop.remove_writer(self._target)

    def _read(self) -> None:
        if (size := self._allowed()) <= 0:
            self._stop_reading()
            return
        try:
            data = self._source.recv(size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # a reset, after which nothing comes
            data = b""
        self._took(len(data))
        if not data:
            self._finish()
        elif not self._is_deaf:
            self._send(memoryview(data))

    def _send(self, data: memoryview) -> None:
        try:
            self._rest = data[self._target.send(data) :]
        except (BlockingIOError, InterruptedError):
            self._rest = data
        except OSError:
            self._rest, self._is_deaf = memoryview(b""), True
            self._ended()
        if self._rest:
            self._stop_reading()
            self._loop.add_writer(self._target, self._write)

    def _write(self) -> None:
        self._loop.remove_writer(self._target)
        self._send(self._rest)
        self.open()

    def _finish(self) -> None:
        self.is_over = True
        self._stop_reading()
        with suppress(OSError):
            self._target.shutdown(socket.SHUT_WR)
        self._ended()

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._source)
