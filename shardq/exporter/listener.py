"""A small HTTP server for numbers: GET and HEAD of a few paths, and nothing that a stranger could fill.

Anybody may connect. So each connection has one request, and is closed with its reply. A request has at most 8 kB, which
have to be there within 5 s. Connections are bounded, and so are the bytes that are being sent: where there is no room,
those go that have their replies, then who has waited or read longest (`places.py`). A reply that need not be made
always finds a place. Replies are made by a few threads, and all else by one, in an event loop of its own: slow senders
and readers take no thread. Nothing of a request is believed: `Host` is not looked at, and bodies are not read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from shardq.clock import Clock, SystemClock
from shardq.errors import BackendError, ConfigError
from shardq.exporter.errors import FAILED, is_private, public_text
from shardq.exporter.places import StatPlaces
from shardq.exporter.seldom import Seldom
from shardq.sockets import UNIX, address_of, check_address, listeners

MAX_REQUEST: Final = 8 * 1024
"""Bytes of a request: its line and all header fields."""
MAX_FIELDS: Final = 100
"""Header fields of a request."""
THREADS: Final = 8
"""Threads that make replies."""
PATIENCE: Final = 5.0
"""Seconds within which a request must be there."""
REPLY: Final = 10.0
"""Seconds within which a reply must be made, and as many within which it must be read."""
LINGER_SECONDS: Final = 1.0
"""Seconds that the other side has to close, when it was sent all."""
SLICE: Final = 32 * 1024
"""Bytes of a page that are copied for a connection at a time."""
MAX_BUFFER: Final = 64 * 1024
"""Bytes that the system keeps for a connection that reads slowly; Linux takes twice as many."""
PAUSE: Final = 0.2
"""Seconds until connections are taken again, after one could not be taken."""
ENDING: Final = 2.0
"""Seconds in which replies that are under way may be sent at the end."""
UNREAD: Final = 64 * 1024
"""Bytes behind a request that are read and dropped, so that the reply is not lost with them."""
_TARGET: Final = re.compile("[!-~]+")
PLAIN_TEXT: Final = "text/plain; charset=utf-8"

log = logging.getLogger("shardq.exporter")


class HttpRequest(NamedTuple):
    """A request: `path` is decoded; `rest` follows the path of the route, and `query` follows ?.

    `accept` is the header field of that name. `twice` are names that the query says more than once: the last counts.
    """

    path: str
    rest: str
    query: Mapping[str, str]
    accept: str
    twice: Collection[str] = ()


class Reply(NamedTuple):
    """The answer to a request: *body* is of the content type *kind*. Text is sent as UTF-8."""

    body: str | bytes
    kind: str = PLAIN_TEXT
    status: int = 200

    def encoded(self) -> Reply:
        """Return the same with a body of bytes."""
        return self if isinstance(self.body, bytes) else self._replace(body=self.body.encode("utf-8", "replace"))


class Refusal(Exception):
    """A request that is not answered as it was meant: its *status* and one line of text say why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


Route = Callable[[HttpRequest], Reply] | Reply
"""A reply, or what makes it in one of a few threads, or raises `Refusal`."""


class Listener:
    """Serves *routes*, a table of paths, on `HOST:PORT` or `unix:PATH`, from `open` until `close`.

    A path that ends with / is that of all paths that begin so. With *tls* it speaks HTTPS. ConfigError for an address
    on which one cannot listen.

    >>> listener = Listener("127.0.0.1:0", {"/healthz": Reply("ok")})
    >>> listener.open()
    >>> listener.close()
    """

    def __init__(
        self,
        listen: str,
        routes: Mapping[str, Route],
        *,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls: Mapping[str, Any] = (
            {"ssl": tls, "ssl_handshake_timeout": PATIENCE, "ssl_shutdown_timeout": ENDING} if tls else {}
        )
        self._listen, self._routes = (
            check_address("the address", listen),
            {path: route.encoded() if isinstance(route, Reply) else route for path, route in routes.items()},
        )
        self._clock = clock or SystemClock()
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._places = StatPlaces()
        self._makers = asyncio.Semaphore(THREADS)
        self._tasks = set[asyncio.Task[None]]()  # the loop itself keeps only weak references
        self._closing = asyncio.Event()
        self._seldom = Seldom(self._clock)

    @property
    def turned_away(self) -> int:
        """Connections that had to make room for others."""
        return self._places.turned_away

    def bind(self) -> None:
        """Take the address, so that nobody else gets it; connections wait until `open`."""
        if self._sockets:
            return
        try:
            self._sockets = listeners(self._listen)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror  # below 0: of names
            raise ConfigError(f"cannot listen on {self._listen}: {why or error}") from None

    def open(self) -> None:
        """Begin to serve, in a thread."""
        self.bind()
        ready: SimpleQueue[BaseException | None] = SimpleQueue()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="shardq-reply")
        self._thread = threading.Thread(target=self._run, args=(ready,), name="shardq-listener", daemon=True)
        self._thread.start()
        if (failed := ready.get()) is not None:
            self.close()
            raise ConfigError(f"cannot listen on {self._listen}: {failed}") from failed

    @property
    def address(self) -> str:
        """Where it listens, with the real port if 0 was asked for."""
        return address_of(self._listen, self._sockets)

    def close(self) -> None:
        """Take no more connections, send the replies that are under way within 2 s, and end all others."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._closing.set)
            thread.join()
        self._close_sockets()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._loop = self._thread = self._pool = None

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        if self._sockets and self._listen.startswith(UNIX):
            Path(self._listen.removeprefix(UNIX)).unlink(missing_ok=True)
        self._sockets = []

    def _run(self, ready: SimpleQueue[BaseException | None]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except OSError as error:
            ready.put(error)

    async def _serve(self, ready: SimpleQueue[BaseException | None]) -> None:
        self._loop = asyncio.get_running_loop()
        takers = [asyncio.create_task(self._take(each)) for each in self._sockets]
        ready.put(None)
        await self._closing.wait()
        for taker in takers:
            taker.cancel()
        self._places.end_waiting()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING)

    async def _take(self, listener: socket.socket) -> None:
        """Take connections."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # mostly there are no descriptors for more
                await asyncio.sleep(PAUSE)
                continue
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BUFFER)
            self._places.take(connection)
            self._tasks.add(task := loop.create_task(self._come(connection)))
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # of many that come at once, each can ask before others need its place

    async def _come(self, connection: socket.socket) -> None:
        """Serve one connection, and end it."""
        loop, places = asyncio.get_running_loop(), self._places
        reader = asyncio.StreamReader(MAX_REQUEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, **self._tls)
                asked = await _asked(reader)
            if not places.has(connection):
                return  # it had to make room
            reply = await self._reply(connection, asked)
            async with asyncio.timeout(REPLY):
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                await self._send(writer, reply, is_head=isinstance(asked, bytes) and asked.startswith(b"HEAD "))
            if places.has(connection):
                places.linger(connection)
                async with asyncio.timeout(LINGER_SECONDS):
                    await _linger(reader, writer)
        except (OSError, TimeoutError, EOFError) as error:
            error.__traceback__ = None  # the reader keeps the error, which keeps what is here: so the page would stay
        finally:
            places.leave(connection)
            if transport is not None:
                transport.abort()
            else:
                connection.close()

    async def _reply(self, connection: socket.socket, asked: bytes | Refusal) -> Reply:
        """Return the reply to the bytes of a request, which is sent from now on."""
        page, loop = b"", asyncio.get_running_loop()
        try:
            if isinstance(asked, Refusal):
                raise asked
            request, reply = _understood(asked, self._routes)
            if not isinstance(reply, Reply):
                if not self._places.make(connection):
                    raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many ask at once: try again")
                async with asyncio.timeout(REPLY), self._makers:  # what is made waits for nobody, and so is not much
                    reply = await loop.run_in_executor(self._pool, self._made, reply, request)
                page = reply.body if isinstance(reply.body, bytes) else b""
        except Refusal as refusal:
            reply = Reply(f"{refusal.text}\n", status=refusal.status)
        except TimeoutError:
            reply = Reply("this takes too long: try again\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        self._places.send(connection, page)
        return reply.encoded()

    def _made(self, route: Callable[[HttpRequest], Reply], request: HttpRequest) -> Reply:
        try:
            return route(request).encoded()
        except Refusal:
            raise
        except BackendError as error:
            # Its text is for those who run this: it names servers. That Redis is away, the poller says.
            if is_private(error) and self._seldom.is_due():
                log.warning("a request for %r failed: %s", request.path, error)
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, public_text(error)) from None
        except Exception:
            if self._seldom.is_due():
                log.exception("a request for %r failed", request.path)
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, FAILED) from None

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply, *, is_head: bool) -> None:
        """Send a reply, a slice at a time: the rest is shared with all who are sent the same."""
        body = memoryview(reply.body if isinstance(reply.body, bytes) else b"")
        fields = {
            "Date": formatdate(self._clock.wall(), usegmt=True),
            "Content-Type": reply.kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
        if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
            fields["Allow"] = "GET, HEAD"
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until nothing is left
        head = "\r\n".join([*lines, "", ""]).encode("ascii")
        writer.write(head + (b"" if is_head else body[:SLICE]))
        await writer.drain()
        for at in range(SLICE, 0 if is_head else len(body), SLICE):
            writer.write(body[at : at + SLICE])
            await writer.drain()


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that this was all, and wait until the other side has closed."""
    if not writer.can_write_eof():  # TLS says goodbye for both directions
        writer.close()
        await writer.wait_closed()
        return
    writer.write_eof()
    # If something unread is there when a socket is closed, the reply may never arrive.
    unread = UNREAD
    while unread > 0 and (dropped := await reader.read(MAX_REQUEST)):
        unread -= len(dropped)


async def _asked(reader: asyncio.StreamReader) -> bytes | Refusal:
    """Return the line and the header fields of a request. EOFError if the connection ends before."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request may have {MAX_REQUEST} bytes at most")


def _understood(asked: bytes, routes: Mapping[str, Route]) -> tuple[HttpRequest, Route]:
    """Return what a request asks for, and its route. Refusal if there is none."""
    lines = asked.decode("latin-1").split("\r\n")[:-2]
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is no request of HTTP")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
    if method not in ("GET", "HEAD"):
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
    fields = _fields(lines[1:])
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
    path, pairs = _target(target)
    for begin, route in routes.items():
        if path == begin or (begin.endswith("/") and path.startswith(begin)):
            twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
            return HttpRequest(path, path.removeprefix(begin), dict(pairs), fields.get("accept", ""), twice), route
    there = ", ".join(each for each in routes if f"{each}/" not in routes)
    raise Refusal(HTTPStatus.NOT_FOUND, f"not found; there are {there}")


def _fields(lines: list[str]) -> dict[str, str]:
    """Return header fields by their names in small letters. If a field is there twice, its values are joined."""
    if len(lines) > MAX_FIELDS:
        raise Refusal(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request may have {MAX_FIELDS} header fields at most"
        )
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refusal(HTTPStatus.BAD_REQUEST, "a header field is not one")
        name = name.lower()
        fields[name] = f"{fields[name]}, {value.strip()}" if name in fields else value.strip()
    return fields


def _target(target: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path that a request names, decoded, and what its query says."""
    path, _, query = target.partition("?")
    if not _TARGET.fullmatch(target):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the path and the query must be visible ASCII")
    try:
        decoded = unquote_to_bytes(path).decode()
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the path and the query must be UTF-8") from None
    if not decoded.startswith("/"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "a path begins with /")
    return decoded, pairs
