"""The front door: it listens, knows who comes from where, and passes bytes on to grpc over a private socket.

grpc's server takes every connection and every call that comes. It can only bound all of them together, which lets one
stranger lock out all producers, and it tells nothing of an address before a call is there. So the door stands before
it. It counts connections by address, closes those that show no token, and bounds the bytes from a connection without
one: a flood of frames of whatever kind waits in the stranger's own machine. TLS passes through unread.

A chunk of bytes that it passes on has as many messages as have come by then, so a message costs the gateway no more CPU
that could be measured.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Final

from shardq.clock import Clock
from shardq.errors import ConfigError
from shardq.gateway.notices import Notices
from shardq.gateway.pace import ProducerPace
from shardq.gateway.settings import EXTRA, GatewaySettings
from shardq.gateway.sockets import connected, private_folder
from shardq.gateway.strangers import Address, Strangers, name_of
from shardq.gateway.visitor import Origin, Visitor
from shardq.sockets import address_of, listeners

MAX_CONNECTIONS_A_TURN: Final = 16
"""Connections that are taken before others have their turn."""
PERIOD: Final = 0.25
"""Seconds between two looks at the connections without a token."""
PAUSE: Final = 0.2
"""Seconds until connections are taken again, after one could not be taken."""
SLACK_BYTES: Final = 1024 * 1024
"""Bytes that may come besides the largest message: HTTP/2's own, and four times what it lets come ahead of a reader."""
PER_CONNECTION: Final = 3
"""Descriptors that a connection takes: the door's two, and grpc's."""


class Entrance:
    """One address on which the door listens, HOST:PORT or unix:PATH, with budgets of its own for strangers."""

    def __init__(self, listen: str, per_address: int, clock: Clock) -> None:
        self.strangers = Strangers(per_address, clock)
        self.listeners: list[socket.socket] = []
        self._listen = listen

    def open(self) -> None:
        """Listen. ConfigError if that is not possible."""
        try:
            self.listeners = listeners(self._listen)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self._listen}: {error.strerror or error}") from None

    @property
    def address(self) -> str:
        """Where it listens, with the real port if 0 was asked for."""
        return address_of(self._listen, self.listeners)

    def shut(self) -> None:
        """Take no more connections."""
        for listener in self.listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        if self.listeners and self._listen.startswith("unix:"):
            Path(self._listen.removeprefix("unix:")).unlink(missing_ok=True)
        self.listeners = []


class Door:
    """Listens on one address or more, and keeps the connections. `passed` counts the bytes that were taken from all."""

    def __init__(self, settings: GatewaySettings, clock: Clock, notices: Notices) -> None:
        self.clock, self.most_unread = clock, settings.max_message + EXTRA + SLACK_BYTES
        self.entrances = [Entrance(each, settings.connections_per_address, clock) for each in settings.addresses]
        self._is_secure = settings.tls_cert is not None
        self._folder: Path | None = None
        self.passed, self.pace = 0, ProducerPace(clock)
        self._notices = notices
        self._visitors: dict[str, Visitor] = {}
        self._names = map(str, count())
        self._sweeping: asyncio.Task[None] | None = None

    @cached_property
    def inside(self) -> Path:
        """The private socket on which grpc is to listen. Nobody else can reach its folder."""
        self._folder = private_folder(self.clock.wall())
        return self._folder / "s"

    @property
    def addresses(self) -> list[Address]:
        """All addresses that are remembered."""
        return [each for entrance in self.entrances for each in entrance.strangers.by_name.values()]

    def listen(self) -> None:
        """Listen. ConfigError if that is not possible."""
        for entrance in self.entrances:
            entrance.open()
        for entrance in self.entrances:
            self._take_more(entrance)
        self._sweeping = asyncio.create_task(self._sweep())

    def visitor(self, peer: str) -> Visitor | None:
        """Return whose connection it is that grpc knows as *peer*, since a call begins there; None if it is gone."""
        visitor = self._visitors.get(peer.rpartition("/")[2])
        if visitor is not None:
            visitor.has_called = True
        return visitor

    def shut(self) -> None:
        """Take no more connections."""
        for entrance in self.entrances:
            entrance.shut()

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        self.shut()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for visitor in list(self._visitors.values()):
            visitor.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def turn_away(self, address: Address) -> None:
        """Count a connection that was not taken, or that had to make room."""
        address.turned_away += 1
        self._notices.say("turned away", address.name, f"{address.name} opens too many connections without a token")

    def note_silent(self, visitor: Visitor) -> None:
        """Say that a connection has ended on which no call had begun, if there was a handshake that may have failed."""
        if self._is_secure:
            name, peer = visitor.address.name, visitor.peer
            text = f"a connection from {peer} ended before a call began: its handshake of TLS may have failed"
            self._notices.say("no call", name, text)

    def note_empty(self, visitor: Visitor) -> None:
        """Say that a connection was ended which sends frames, and no messages."""
        name = visitor.address.name
        self._notices.say("frames", name, f"{visitor.peer} sends frames that are no messages, and loses its connection")

    def is_gone(self, visitor: Visitor) -> None:
        """Forget *visitor*, which is closed."""
        self._visitors.pop(visitor.name, None)

    def _take_more(self, entrance: Entrance) -> None:
        for listener in entrance.listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, entrance, listener)

    def _accept(self, entrance: Entrance, listener: socket.socket) -> None:
        for _ in range(MAX_CONNECTIONS_A_TURN):
            try:
                outer, where = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # mostly there are no descriptors for more
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE, self._take_more, entrance)
                return
            self._come(entrance.strangers, outer, where)

    def _come(self, strangers: Strangers, outer: socket.socket, where: object) -> None:
        host, port = (str(where[0]), where[1]) if isinstance(where, tuple) else ("", 0)
        address = strangers.address(name_of(host))
        if not address.newcomers.take():
            self.turn_away(address)
            outer.close()
            return
        name = next(self._names)
        try:
            outer.setblocking(False)
            if host:
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            inner = connected(self.inside.with_name(name), self.inside)
        except OSError:
            outer.close()
            return
        peer = f"{host}:{port}" if host else "local"
        visitor = self._visitors[name] = Visitor(self, name, (outer, inner), Origin(peer, address, strangers))
        visitor.open()

    async def _sweep(self) -> None:
        """Give those who have shown no token the bytes that they may send by now, or end them if it took long."""
        while True:
            await asyncio.sleep(PERIOD)
            now = self.clock.monotonic()
            for entrance in self.entrances:
                for visitor in entrance.strangers.everyone():
                    if visitor.until <= now:
                        visitor.close()
                    else:
                        visitor.refill()
