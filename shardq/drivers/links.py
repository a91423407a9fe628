"""Links: connections for short calls of threads, on which the driver itself sends and receives.

redis-py finds the node, connects, and says hello, with TLS and a password where they are wanted. Then its socket is
taken over: for each call redis-py's pool, its checks and its wrappers would take as long as all the rest of the client.
The pool goes on regarding the connection as in use, so that closing the pool closes it, too.
"""

from __future__ import annotations

import _socket
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from select import POLLIN, POLLOUT, poll
from typing import Any, Final

import redis

from shardq.drivers.failures import answer_of
from shardq.drivers.pools import leads_to_master
from shardq.drivers.resp import MORE, new_parser

RECEIVED: Final = 64 * 1024
"""Bytes that are received at once."""

TRUSTED: Final = 0.01
"""Seconds for which a link that was used is taken to be sound. After them it is looked at before it is used again."""

CLOSED: Final = (AttributeError, TypeError, ValueError, OSError)
"""What redis-py may raise when another thread closes the connection during a call."""

_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """A connection of redis-py whose socket was taken over. `peer` is the address of its other end.

    The kernel waits for what arrives, for as long as the socket was told (SO_RCVTIMEO): one system call. Python's own
    timeouts take two. A socket with TLS, or one of a library that replaces Python's, does not block, and `poll` waits
    for it.
    """

    def __init__(self, connection: Any) -> None:
        self.connection, self.peer = connection, _peer_of(connection)
        self.used_at = 0.0
        self._socket = connection._sock
        self._silence = self._socket.gettimeout()
        self._waits = type(self._socket).recv_into is _socket.socket.recv_into
        self._socket.setblocking(self._waits)
        self._patience = 0.0
        self._decrypted: Callable[[], int] | None = getattr(self._socket, "pending", None)  # only with TLS
        self._readable = poll()
        self._readable.register(self._socket, POLLIN)
        self._parser = new_parser()
        self._buffer = bytearray(RECEIVED)

    def ask(self, request: bytes, count: int, limit: float) -> list[Any]:
        """Send *request* and return the *count* answers, of which a refusal is one, too.

        The server may be silent for *limit* seconds, and after it has begun to answer, for as long as redis-py would
        let it. Raises redis-py's exceptions and OSError.
        """
        self._send(request, limit)
        self._receive(limit)
        answers: list[Any] = []
        gets = self._parser.gets
        while len(answers) < count:
            reply = gets()
            if reply is MORE:
                # The server has begun to answer, so it works on the call: it may be silent for longer than before.
                self._receive(self._silence)
            else:
                answers.append(answer_of(reply) if isinstance(reply, Exception) else reply)
        return answers

    def send(self, request: bytes) -> None:
        """Send *request*, whose answers are gathered later."""
        self._send(request, self._silence)

    def gather(self, answers: list[Any], count: int, seconds: float) -> bool:
        """Add to *answers* what comes. Return whether there are *count*: no, if nothing comes for *seconds*."""
        while True:
            while len(answers) < count and (reply := self._parser.gets()) is not MORE:
                answers.append(answer_of(reply))
            if len(answers) == count:
                return True
            # TLS may have decrypted more than was asked for: then poll() sees nothing, though there is something.
            if not (self._decrypted and self._decrypted()) and not self._readable.poll(seconds * 1000):
                return False
            self._receive(self._silence)

    def is_clean(self) -> bool:
        """Return whether nothing was received after the answers that were asked for."""
        return not self._parser.has_data()

    def is_sound(self) -> bool:
        """Return whether nothing has come since the last answer, such as the end of the connection."""
        return not self._readable.poll(0)

    def _send(self, request: bytes, limit: float) -> None:
        try:
            sent = self._socket.send(request, socket.MSG_DONTWAIT) if self._waits else self._socket.send(request)
        except _NOT_YET:
            sent = 0
        if sent < len(request):
            self._send_rest(memoryview(request)[sent:], limit)

    def _send_rest(self, rest: memoryview, limit: float) -> None:
        writable = poll()
        writable.register(self._socket, POLLOUT)
        while rest:
            self._await(writable, limit)
            try:
                rest = rest[self._socket.send(rest, *([socket.MSG_DONTWAIT] if self._waits else [])) :]
            except ssl.SSLWantReadError:
                self._await(self._readable, limit)
            except _NOT_YET:
                continue

    def _receive(self, limit: float) -> None:
        """Give the parser what arrives next."""
        if self._waits:
            if limit != self._patience:
                self._be_patient(limit)
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                raise redis.TimeoutError(f"no answer for {limit:.3g} s") from None
        else:
            size = self._receive_polled(limit)
        if not size:
            raise redis.ConnectionError("the server closed the connection")
        self._parser.feed(self._buffer, 0, size)

    def _be_patient(self, limit: float) -> None:
        """Let the kernel wait for *limit* seconds, or for a millisecond: 0 would be for ever."""
        seconds, part = divmod(max(limit, 0.001), 1)
        wait = struct.pack("@ll", int(seconds), int(part * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        self._patience = limit

    def _receive_polled(self, limit: float) -> int:
        while True:
            if self._decrypted is None or not self._decrypted():
                self._await(self._readable, limit)
            try:
                return int(self._socket.recv_into(self._buffer))
            except _NOT_YET:  # a part of what TLS needs to decrypt the next piece
                continue

    def _await(self, ready: poll, limit: float) -> None:
        if not ready.poll(limit * 1000):
            raise redis.TimeoutError(f"no answer for {limit:.3g} s")


class Links:
    """The idle links to one node. They belong to *pool*, and the one that was used last is used next.

    One that was idle for *most_idle* seconds is not used again; 0 means that it is, however long it was idle.
    """

    def __init__(
        self, pool: Any, connect: Callable[[Any], Any], now: Callable[[], float], most_idle: float = 0
    ) -> None:
        self._pool, self._connect, self._now, self._most_idle = pool, connect, now, most_idle
        self._idle: deque[Link] = deque()  # its methods are atomic, so threads need no lock
        self._has_sentinels = hasattr(pool, "master_address")

    def take(self) -> Link:
        """Return a link for the caller alone, which gives it back with `give`, or with `drop` if it failed."""
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return Link(self._connect(self._pool))
            # To look at a socket is a system call, and one that was used just now is hardly ever dead.
            if self._now() - link.used_at < TRUSTED and not self._has_sentinels:
                return link  # the common case
            if self._is_fit(link):
                return link
            self.drop(link)

    def give(self, link: Link) -> None:
        """Keep *link* for the next caller."""
        link.used_at = self._now()
        self._idle.append(link)

    def drop(self, link: Link) -> None:
        """Close *link*."""
        link.connection.disconnect()
        # The pool counts its connections, and would refuse new ones for one that is not given back.
        self._pool.release(link.connection)

    def drop_idle(self) -> None:
        """Close all links that nobody uses."""
        while self._idle:
            try:
                self.drop(self._idle.pop())
            except IndexError:
                return

    def _is_fit(self, link: Link) -> bool:
        # Sentinels may have named another master since. The old one may still accept writes, which would be lost.
        if self._has_sentinels and not leads_to_master(self._pool, link.connection):
            return False
        idle = self._now() - link.used_at
        if self._most_idle and idle >= self._most_idle:
            return False
        return idle < TRUSTED or link.is_sound()


def _peer_of(connection: Any) -> Any:
    """Return the address of the other end of *connection*'s socket; None if it has no socket."""
    try:
        return connection._sock.getpeername()
    except CLOSED:
        return None
