"""Serves the page on an address of its own, in a thread: by uvicorn."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from shardq.arguments import shown
from shardq.client import AsyncClient
from shardq.dashboard.crowd import ANY_PROXY, Browsers, Handshake
from shardq.errors import ClosedError, ConfigError
from shardq.sockets import UNIX, address_of, check_address, listeners

ENDING: Final = 2
"""Seconds in which replies that are under way may be sent at the end."""
LEAVING: Final = 30.0
"""Seconds in which the thread that serves has to end, once it was asked to."""
BACKLOG: Final = 64
"""Connections that wait to be accepted. Where no more can be opened, asyncio tries each, and tells of each."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two lines of the log that say so."""
FULL_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""How a system answers that opens no more connections."""

log = logging.getLogger("shardq.dashboard")
Make = Callable[[AsyncClient], Starlette]


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Where the page is served: on `HOST:PORT` or `unix:PATH`, with TLS if there is a certificate.

    The word of *proxies* on who asks is believed: these are their addresses. ConfigError for what cannot be.
    """

    listen: str
    proxies: Sequence[str] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        check_address("the address", self.listen)
        for each in self.proxies:
            _check_proxy(each)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its key")

    def address(self, sockets: list[socket.socket]) -> str:
        """Return what a browser is given to open it, once it listens."""
        where = address_of(self.listen, sockets)
        if self.listen.startswith(UNIX):
            return where
        return f"http{'s' if self.tls_cert else ''}://{'localhost' if where.startswith(':') else ''}{where}/"


def _check_proxy(address: str) -> None:
    """ConfigError if nobody can come from there: the word of a proxy that is named so would be believed never."""
    try:
        ipaddress.ip_network(address, strict=False)
    except ValueError:
        if address != ANY_PROXY:
            raise ConfigError(
                f"a proxy is an IP address, or {ANY_PROXY} for any neighbour, not {shown(address)}"
            ) from None


class ServingComplaints:
    """Tells the log once a minute that no more connections can be opened. All else goes the usual way of a loop."""

    def __init__(self) -> None:
        self._next_line = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the loop complains of."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in FULL_ERRORS:
            loop.default_exception_handler(context)
        elif loop.time() >= self._next_line:
            self._next_line = loop.time() + LOG_INTERVAL
            log.warning("no more browsers can connect: %s (see ulimit -n)", error.strerror)


class ServingLoop(asyncio.SelectorEventLoop):
    """A loop on which nobody holds a connection open by saying nothing of TLS."""

    async def create_server(self, *args: Any, **named: Any) -> asyncio.Server:
        """Listen."""
        if (context := named.pop("ssl", None)) is not None:
            make, *rest = args
            args = (partial(Handshake, make, context), *rest)
        return await super().create_server(*args, **named)


class PageServer:
    """Serves what *make* makes of a client, from `open` until `close`. Ask with `check` whether it still does.

    *connect* makes the client, in the thread that serves. ConfigError for an address on which one cannot listen.
    """

    def __init__(self, settings: PageSettings, connect: Callable[[], AsyncClient], make: Make) -> None:
        self._settings, self._listen = settings, settings.listen
        self._connect, self._make = connect, make
        self._sockets: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._end: Callable[[], None] = lambda: None
        self._failed: BaseException | None = None

    @property
    def address(self) -> str:
        """The URL for a browser, with the real port if 0 was asked for."""
        return self._settings.address(self._sockets)

    def open(self) -> None:
        """Begin to serve, in a thread."""
        try:
            self._sockets = listeners(self._listen)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigError(f"cannot listen on {self._listen}: {why or error}") from None
        ready: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="shardq-page", daemon=True)
        self._thread.start()
        if (failed := ready.get()) is not None:
            self.close()
            raise failed

    def check(self) -> None:
        """ClosedError if the page is not served any more, though nobody has closed it."""
        if self._thread is not None and not self._thread.is_alive():
            why = f": {type(self._failed).__name__} {self._failed}".rstrip() if self._failed else ""
            raise ClosedError(f"the page is not served any more{why}; start it again") from self._failed

    def close(self) -> None:
        """End all streams, and serve no more."""
        if self._thread is not None:
            self._end()
            self._thread.join(LEAVING)
        for each in self._sockets:
            each.close()
        if self._sockets and self._listen.startswith(UNIX):
            Path(self._listen.removeprefix(UNIX)).unlink(missing_ok=True)
        self._sockets, self._thread = [], None

    def _run(self, ready: SimpleQueue[BaseException | None]) -> None:
        try:
            with asyncio.Runner(loop_factory=ServingLoop) as runner:
                runner.run(self._serve(ready))
        except BaseException as error:  # any error that ends the thread: its waiter learns of it
            log.debug("the page is not served any more", exc_info=error)
            self._failed = error
            ready.put(error)

    async def _serve(self, ready: SimpleQueue[BaseException | None]) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(ServingComplaints())
        async with self._connect() as client:
            page = self._make(client)
            crowd = Browsers(self._settings.proxies)
            server = uvicorn.Server(self._config(page, crowd))

            def end() -> None:
                page.state.live.close()
                server.should_exit = True

            def asked_to_end() -> None:
                with suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(end)

            self._end = asked_to_end
            ready.put(None)
            if (handles := page.state.handles) is not None:
                handles.search()
            watch = asyncio.create_task(crowd.watch())
            try:
                await server.serve(sockets=self._sockets)
            finally:
                watch.cancel()
                if handles is not None:
                    await handles.close()

    def _config(self, page: Starlette, crowd: Browsers) -> uvicorn.Config:
        settings = self._settings
        try:
            config = uvicorn.Config(
                page,
                loop="asyncio",
                http=crowd.protocol(),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # of warnings, those who send junk decide how many there are
                access_log=False,
                server_header=False,
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=list(settings.proxies),
                backlog=BACKLOG,
                timeout_graceful_shutdown=ENDING,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
            config.load()
        except OSError as error:  # also what is wrong with a certificate
            raise ConfigError(f"the certificate or its key cannot be used: {error.strerror or error}") from None
        return config
