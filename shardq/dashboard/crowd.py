"""The connections of browsers: their number is bounded, and one that stands still ends, also before it speaks TLS.

uvicorn has a deadline for a connection that is idle between two requests, and none for a head, an answer that nobody
takes, or a connection that says nothing at all. So a stranger could hold all connections open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from shardq.dashboard.guesses import place_of

MAX_CONNECTIONS: Final = 800
"""Connections at a time. A process may open 1,024 files, unless somebody has raised that."""
MAX_OF_ADDRESS: Final = 250
"""Connections of one address at a time; a proxy, and a socket of this machine, may have all."""
HEAD: Final = 10.0
"""Seconds within which the head of a request has to be there, from the connection or from the last answer."""
TAKING_SECONDS: Final = 30.0
"""Seconds within which a browser has to take what it gets."""
SWEEP: Final = 1.0
"""Seconds between two looks at all connections."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two lines of the log about a crowd."""
ANY_PROXY: Final = "*"
"""Any neighbour is a proxy: right on a socket of this machine, which has no addresses."""

log = logging.getLogger("shardq.dashboard")


class Browsers:
    """All connections of one server. Of too many, the one that waits longest without a request gives way."""

    def __init__(self, proxies: Sequence[str] = ()) -> None:
        self._is_open = ANY_PROXY in proxies
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in proxies if each != ANY_PROXY]
        self._all: dict[BrowserConnection, str] = {}
        """The address that each counts for; "" is one that may have all."""
        self._of_address: Counter[str] = Counter()
        self._next_line = -LOG_INTERVAL

    def __len__(self) -> int:
        return len(self._all)

    def protocol(self) -> type[BrowserConnection]:
        """Return the protocol of the connections of this crowd."""
        return type("Connection", (BrowserConnection,), {"crowd": self})

    def admit(self, one: BrowserConnection, address: str) -> bool:
        """Let a connection in, if there is room for it, or room can be made. One that is in stays."""
        if one in self._all:
            return True
        place = self._place(address)
        if place and self._of_address[place] >= MAX_OF_ADDRESS:
            self._tell("one address has as many connections as it may have: the oldest without a request end")
            if not self._make_room(place):
                return False
        if len(self._all) >= MAX_CONNECTIONS:
            self._tell("there are as many connections as there may be: the oldest without a request end")
            if not self._make_room(None):
                return False
        self._all[one] = place
        self._of_address[place] += 1
        return True

    def leave(self, one: BrowserConnection) -> None:
        """Note that a connection has ended."""
        place = self._all.pop(one, None)
        if place is not None:
            self._of_address[place] -= 1
            if not self._of_address[place]:
                del self._of_address[place]

    def sweep(self, now: float) -> None:
        """End the connections that stand still."""
        for each in [each for each in self._all if each.is_overdue(now)]:
            each.end()

    async def watch(self) -> None:
        """Sweep until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP)
            self.sweep(loop.time())

    def _place(self, address: str) -> str:
        """Return what an address counts for; "" if it may have all connections."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:  # a socket of this machine
            return ""
        is_proxy = self._is_open or any(found in each for each in self._proxies if each.version == found.version)
        return "" if is_proxy else place_of(address)

    def _make_room(self, place: str | None) -> bool:
        """End the connection of a place, or of all, that waits longest without a request, if there is one."""
        idle = (each for each, its in self._all.items() if place in (None, its) and not each.is_busy)
        longest = min(idle, key=lambda each: each.since, default=None)
        if longest is None:
            return False
        longest.end()
        return True

    def _tell(self, what: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_line:
            self._next_line = now + LOG_INTERVAL
            log.warning("the page is crowded: %s", what)


class BrowserConnection(H11Protocol):
    """One connection. It is busy while a request is answered."""

    crowd: Browsers

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.since = self.loop.time()
        """When it was made, or its last request was seen."""
        self._paused_at: float | None = None
        """Since when its browser takes nothing."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is room."""
        super().connection_made(transport)
        if not self.crowd.admit(self, self.client[0] if self.client else ""):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.crowd.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.since = self.loop.time()

    def pause_writing(self) -> None:
        """Note that the browser takes nothing for now."""
        self._paused_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the browser takes what it gets."""
        self._paused_at = None
        super().resume_writing()

    def is_overdue(self, now: float) -> bool:
        """Whether it stands still for longer than it may."""
        if self._paused_at is not None:
            return now - self._paused_at >= TAKING_SECONDS
        if self.is_busy:
            self.since = now
            return False
        is_taken = not self.transport.get_write_buffer_size()
        return now - self.since >= (HEAD if is_taken else TAKING_SECONDS)

    def end(self) -> None:
        """End it at once."""
        self.crowd.leave(self)
        self.transport.abort()


class Handshake(asyncio.Protocol):
    """A connection that is to speak TLS by *context* first. It counts from its beginning as the one that *make* makes.

    asyncio would make that one only once the other end has spoken TLS: those that say nothing would count as none.
    """

    _under_way: Final[set[asyncio.Task[None]]] = set()
    """The loop itself keeps only weak references to tasks."""

    def __init__(self, make: Callable[[], BrowserConnection], context: ssl.SSLContext) -> None:
        self._one, self._context = make(), context
        self._early = bytearray()  # what came before the connection itself could take it
        self._is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is room. The connection within TLS is made by `_begin`."""
        one = self._one
        one.transport = transport
        client = get_remote_addr(transport)
        if not one.crowd.admit(one, client[0] if client else ""):
            transport.abort()
            return
        self._under_way.add(task := one.loop.create_task(self._begin(transport)))
        task.add_done_callback(self._under_way.discard)

    def data_received(self, data: bytes) -> None:
        """Keep what comes with the end of the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._is_lost = True
        self._one.crowd.leave(self._one)

    async def _begin(self, transport: asyncio.Transport) -> None:
        one = self._one
        try:
            secured = await one.loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HEAD
            )
        except OSError:  # also what is wrong with TLS; the loop has closed the connection
            one.crowd.leave(one)
            return
        if secured is None or self._is_lost:
            return
        secured.set_protocol(one)
        one.connection_made(secured)
        if self._early:
            one.data_received(bytes(self._early))
