"""A loopback proxy in front of a server that loses whole requests, replies and time, on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Self
from urllib.parse import unquote, urlsplit

import hiredis

from shardq.protocol.scripts import load

_VERBS = {"ack": "settle", "nack": "settle", "recover": "lost"}


def on_the_wire(verb: str) -> bytes:
    """What is in the call of a verb and in that of no other."""
    script = load(_VERBS.get(verb, verb))
    return f"{script.function or script.sha}\r\n".encode()  # with its end: the name of another verb may begin so


@dataclass
class Cut:
    """A fault to come: it strikes one request with `match` in it, after `skip` such requests passed."""

    match: bytes
    skip: int
    answered: bool
    struck: threading.Event = field(default_factory=threading.Event)  # set once the connection is closed


class Proxy:
    """A context manager that listens on 127.0.0.1 (`url`) and forwards to `upstream`, a redis:// or unix:// URL."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._cuts: list[Cut] = []
        self._copies: list[tuple[bytes, list[bytes]]] = []
        self._acts: list[list[Any]] = []
        self._links: set[_Link] = set()
        self._seconds, self._lock = 0.0, threading.Lock()
        self._prompt, self._open = threading.Event(), threading.Event()
        self._rate, self._never = 0, threading.Event()
        self.accepted = 0  # connections so far

    def __enter__(self) -> Self:
        self.heal()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # close alone does not wake a thread in accept
        self._acceptor.join()
        self._listener.close()
        self.heal()
        for link in self.drop():
            link.join()

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:…/0`."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def cut_after_request(self, match: bytes, *, skip: int = 0) -> Cut:
        """The server acts on a request with `match` in it, its reply comes, and the connection closes without it."""
        return self._plan(Cut(match, skip, answered=True))

    def cut_before_request(self, match: bytes, *, skip: int = 0) -> Cut:
        """The connection closes when a request with `match` in it arrives; the server never sees it."""
        return self._plan(Cut(match, skip, answered=False))

    def before_request(self, match: bytes, act: Callable[[], object], *, skip: int = 0) -> None:
        """Call *act* before a request with `match` in it passes on, after `skip` such requests passed."""
        with self._lock:
            self._acts.append([match, skip, act])

    def copies(self, match: bytes) -> list[bytes]:
        """A list to which each request with `match` in it is added as it comes, also one that is cut: see `deliver`."""
        found: list[bytes] = []
        self._copies.append((match, found))
        return found

    def deliver(self, request: bytes) -> object:
        """Send a request that came before to the server once more, as a network does that holds one back; the reply."""
        more = object()
        reader = hiredis.Reader(notEnoughData=more)
        with self._upstream_socket() as server:
            server.settimeout(30)
            server.connect(self._target())
            server.sendall(request)
            while (reply := reader.gets()) is more:
                data = server.recv(65_536)
                assert data, "the server closed the connection"
                reader.feed(data)
        return reply

    def delay(self, seconds: float) -> None:
        """Hold every piece of a reply back for that long, until `heal`."""
        self._seconds = seconds
        self._prompt.clear()

    def throttle(self, rate: int) -> None:
        """Pass replies on at *rate* bytes a second, a little at a time, until `heal`."""
        self._rate = rate

    def blackhole(self) -> None:
        """Accept connections and keep them, but pass nothing on either way, until `heal`; then nothing is lost."""
        self._open.clear()

    def forget(self) -> None:
        """Pass on no more requests over the connections there are, as a firewall does that has forgotten them."""
        with self._lock:
            for link in self._links:
                link.forgotten = True

    def pass_on(self) -> None:
        """End a black hole alone."""
        self._open.set()

    def heal(self) -> None:
        """End delays and black holes, forget cuts that have not struck."""
        with self._lock:
            self._cuts.clear()
            self._acts.clear()
        self._prompt.set()
        self._open.set()
        self._rate = 0

    def lead_to(self, upstream: str) -> None:
        """Forward to another server from now on: what a failover does to a name. Connections that there are end."""
        self._upstream = urlsplit(upstream)
        self.drop()

    def drop(self) -> list[_Link]:
        """Close every connection now; new ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return links

    def admit(self, request: bytes) -> Cut | None:
        """Wait while the hole is black; then the cut that strikes this request, if one does."""
        self._open.wait()
        for act in self._due(request):
            act()
        with self._lock:
            for match, found in self._copies:
                if match in request:
                    found.append(request)
            for cut in [each for each in self._cuts if each.match in request]:
                cut.skip -= 1
                if cut.skip < 0:
                    self._cuts.remove(cut)
                    return cut
        return None

    def _due(self, request: bytes) -> list[Callable[[], object]]:
        with self._lock:
            due = []
            for each in [each for each in self._acts if each[0] in request]:
                each[1] -= 1
                if each[1] < 0:
                    self._acts.remove(each)
                    due.append(each[2])
            return due

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """*data* as it may go on to the client: each piece at its time."""
        at = 0
        while at < len(data):
            size = max(1, self._rate // 20) if self._rate else len(data)
            yield data[at : at + size]
            at += size
            if self._rate:
                self._never.wait(size / self._rate)

    def hold(self) -> None:
        """Wait until a piece of a reply may go on to the client."""
        if not self._prompt.is_set():
            self._prompt.wait(self._seconds)
        self._open.wait()

    def _plan(self, cut: Cut) -> Cut:
        with self._lock:
            self._cuts.append(cut)
        return cut

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                self._link(client)

    def _link(self, client: socket.socket) -> None:
        server = self._upstream_socket()
        try:
            server.connect(self._target())
        except OSError:  # the server is down, and so is the proxy
            client.close()
            server.close()
            return
        link = _Link(self, client, server)
        with self._lock:
            self._links.add(link)
        link.start()

    def _upstream_socket(self) -> socket.socket:
        return socket.socket(socket.AF_UNIX if self._upstream.scheme == "unix" else socket.AF_INET)

    def _target(self) -> str | tuple[str, int]:
        where = self._upstream
        return unquote(where.path) if where.scheme == "unix" else (where.hostname or "", where.port or 6379)


class _Link(threading.Thread):
    """One connection: this thread carries replies, a second one requests."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        super().__init__(daemon=True)
        self._proxy, self._client, self._server = proxy, client, server
        self._changed = threading.Condition()
        self._unanswered, self._mute, self._gone = 0, False, False
        self.forgotten = False

    def cut(self) -> None:
        """Close both sides."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        requests = threading.Thread(target=self._carry_requests, daemon=True)
        with self._client, self._server:
            requests.start()
            with contextlib.suppress(OSError):
                self._carry_replies()
            self.cut()
            requests.join()

    def _carry_requests(self) -> None:
        cut = None
        with contextlib.suppress(OSError, ValueError), self._client.makefile("rb") as stream:
            for request in _requests(stream):
                cut = self._proxy.admit(request)
                if self.forgotten:
                    continue
                if cut:
                    self._await_replies()  # to what came before
                    self._mute = True
                if cut is None or cut.answered:
                    with self._changed:
                        self._unanswered += 1
                    self._server.sendall(request)
                if cut:
                    self._await_replies()
                    break
        self.cut()
        if cut:
            cut.struck.set()

    def _carry_replies(self) -> None:
        more = object()
        reader = hiredis.Reader(notEnoughData=more)
        while data := self._server.recv(65_536):
            reader.feed(data)
            replies = [reply for reply in iter(reader.gets, more) if not isinstance(reply, hiredis.PushNotification)]
            if not self._mute:
                self._proxy.hold()
                for piece in self._proxy.pieces(data):
                    self._client.sendall(piece)
            with self._changed:
                self._unanswered -= len(replies)
                self._changed.notify_all()

    def _await_replies(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._gone or self._unanswered <= 0)


def _requests(stream: BinaryIO) -> Iterator[bytes]:
    """Whole requests in the wire format, arrays of strings."""
    while head := stream.readline():
        parts = [head]
        for _ in range(int(head[1:])):
            size = stream.readline()
            parts += size, stream.read(int(size[1:]) + 2)
        yield b"".join(parts)
