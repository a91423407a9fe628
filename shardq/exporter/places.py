"""The places of a listener: who has one, and who goes when there is none left, for a newcomer or for a page.

A connection waits for its request, then for its reply to be made, then it is sent the reply, and at last it lingers
until the other side has closed. Each is of somebody who may do nothing on purpose.
"""

from __future__ import annotations

import socket
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import Final

MAX_CONNECTIONS: Final = 256
MAX_MADE: Final = 128
"""Replies that are made, or wait for it, at a time: the other places are for those that need not be made."""
MAX_UNSENT: Final = 32 * 1024 * 1024
"""Bytes of pages that are being sent. Connections that are sent the same page share its bytes."""


class StatPlaces:
    """The connections, in the order in which they make room for others.

    First go those that have their reply, then those that have waited or read for the longest.
    """

    def __init__(self) -> None:
        # Those that wait have None, those that are sent something their page; b"" is one that is always there.
        self._open: OrderedDict[socket.socket, bytes | None] = OrderedDict()
        self._made: set[socket.socket] = set()
        self._lingering: OrderedDict[socket.socket, None] = OrderedDict()
        self._readers: Counter[int] = Counter()  # by the identity of their page
        self.unsent = 0
        """Bytes of pages that are being sent, each counted once."""
        self.turned_away = 0
        """Connections that had to go for others."""

    def __len__(self) -> int:
        return len(self._open) + len(self._made) + len(self._lingering)

    def take(self, connection: socket.socket) -> None:
        """A connection comes, and waits for its request."""
        self._open[connection] = None
        if len(self) > MAX_CONNECTIONS:
            self._turn_away(next(iter(self._lingering or self._open)))

    def make(self, connection: socket.socket) -> bool:
        """Its reply is made from now on. False if too many are."""
        if len(self._made) >= MAX_MADE:
            return False
        self.leave(connection)
        self._made.add(connection)
        return True

    def send(self, connection: socket.socket, page: bytes) -> None:
        """It is sent its reply from now on: a *page* that was made, or b"" for a reply that is always there."""
        self.leave(connection)
        self._open[connection] = page
        if not page:
            return
        self._readers[id(page)] += 1
        self.unsent += len(page) if self._readers[id(page)] == 1 else 0
        while self.unsent > MAX_UNSENT and len(self._readers) > 1:
            self._turn_away(next(each for each, unsent in self._open.items() if unsent))

    def linger(self, connection: socket.socket) -> None:
        """All was sent."""
        self.leave(connection)
        self._lingering[connection] = None

    def leave(self, connection: socket.socket) -> None:
        """It has ended, or begins something else."""
        self._made.discard(connection)
        self._lingering.pop(connection, None)
        if page := self._open.pop(connection, None):
            self._readers[id(page)] -= 1
            if not self._readers[id(page)]:
                del self._readers[id(page)]
                self.unsent -= len(page)

    def has(self, connection: socket.socket) -> bool:
        """Say whether a connection is here: it may have had to go."""
        return connection in self._open or connection in self._made or connection in self._lingering

    def end_waiting(self) -> None:
        """End all that have not asked yet."""
        for connection in [each for each, page in self._open.items() if page is None]:
            end(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        self.turned_away += 1
        self.leave(connection)
        end(connection)


def end(connection: socket.socket) -> None:
    """End a connection: a thread that waits for its bytes, or sends it some, sees that there are no more."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
