"""Connections that say nothing, or take nothing: they end, and keep nobody out."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import pytest
import trustme

from shardq.client import AsyncClient
from shardq.dashboard import app, crowd
from shardq.dashboard.crowd import HEAD, MAX_CONNECTIONS, MAX_OF_ADDRESS, TAKING_SECONDS, BrowserConnection, Browsers
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard.asking import said
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.once
ONE_ADDRESS: Final = "one address has as many connections as it may have"


class Standing:
    """A connection that does what a test says."""

    def __init__(self, since: float = 0.0, *, is_busy: bool = False) -> None:
        self.since, self.is_busy, self.has_ended = since, is_busy, False

    def end(self) -> None:
        self.has_ended = True
        self.crowd.leave(cast("BrowserConnection", self))

    crowd: Browsers


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path, Path]:
    """An authority, and the files of a certificate and its key."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return authority, folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def address(server: Server, request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Where the page is served, by TLS if a test asks for "https"."""
    settings = PageSettings("127.0.0.1:0")
    if getattr(request, "param", "http") == "https":
        _, cert, key = request.getfixturevalue("certificate")
        settings = PageSettings("127.0.0.1:0", tls_cert=cert, tls_key=key)
    page = PageServer(settings, lambda: AsyncClient.from_url(server.url), app)
    page.open()
    try:
        found = urlsplit(page.address)
        yield "127.0.0.1", found.port or 0
    finally:
        page.close()


@pytest.fixture
def connect(address: tuple[str, int]) -> Iterator[Callable[[], socket.socket]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(socket.create_connection(address, timeout=60)))


def look(address: tuple[str, int], authority: trustme.CA | None = None) -> int:
    """The status of one who opens the page, by TLS if there is an authority."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    if authority is not None:
        authority.configure_trust(context := ssl.create_default_context())
        connection = http.client.HTTPSConnection(*address, timeout=60, context=context)
    with closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().status


def has_ended(one: socket.socket) -> bool:
    """Wait until a connection says something, and return whether that is its end."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def join(all_of: Browsers, one: Standing, place: str = "192.0.2.1") -> bool:
    one.crowd = all_of
    return all_of.admit(cast("BrowserConnection", one), place)


@pytest.mark.parametrize(
    "address", ["http", pytest.param("https", marks=pytest.mark.runs_in("test-all"))], indirect=True
)
def test_a_thousand_connections_that_say_nothing_keep_nobody_out(
    address: tuple[str, int],
    connect: Callable[[], socket.socket],
    caplog: pytest.LogCaptureFixture,
    certificate: tuple[trustme.CA, Path, Path],
    request: pytest.FixtureRequest,
) -> None:
    silent = [connect() for _ in range(1000)]
    assert look(address, certificate[0] if "https" in request.node.callspec.id else None) == 200
    assert said(caplog).count("\n") == 0
    assert ONE_ADDRESS in said(caplog)
    assert has_ended(silent[0])


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_a_head_that_does_not_come_is_not_waited_for(
    connect: Callable[[], socket.socket], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "HEAD", 0.05)
    monkeypatch.setattr(crowd, "SWEEP", 0.01)
    slow = connect()
    slow.sendall(sent)
    assert has_ended(slow)


def test_a_second_head_that_comes_byte_by_byte_is_not_waited_for(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn waits for the first byte of it, and for no other."""
    monkeypatch.setattr(crowd, "HEAD", 0.5)
    slow = connect()
    slow.sendall(b"GET /me HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert slow.recv(20).startswith(b"HTTP/1.1 200")
    slow.sendall(b"GET / HTTP/1.1\r\nX-A: ")

    def is_over() -> bool:
        try:
            slow.sendall(b"a")
        except OSError:
            return True
        return False

    eventually(is_over, what="an end of the connection")


def test_an_answer_that_nobody_takes_is_not_kept(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "TAKING_SECONDS", 0.1)
    monkeypatch.setattr(crowd, "SWEEP", 0.01)
    greedy = connect()
    greedy.settimeout(0.1)
    asked = b"GET /css/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

    def is_over() -> bool:
        try:
            greedy.sendall(asked)  # and nothing is read
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    eventually(is_over, what="an end of the connection")


def test_one_who_looks_is_not_ended(connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HEAD", 0.2)
    monkeypatch.setattr(crowd, "SWEEP", 0.01)
    looks, silent = connect(), connect()
    looks.sendall(b"GET /live?scene=overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert has_ended(silent)
    told = b""
    while told.count(b"event: beat") < 2:  # each is 2 s after the one before
        told += looks.recv(65536)


async def test_who_waits_longest_without_a_request_gives_way() -> None:
    all_of = Browsers()
    busy = [Standing(is_busy=True) for _ in range(MAX_OF_ADDRESS - 2)]
    assert all(join(all_of, each) for each in busy)
    younger, older, other = Standing(2.0), Standing(1.0), Standing(0.0)
    assert join(all_of, younger)
    assert join(all_of, older)
    assert join(all_of, other, "192.0.2.2")
    assert join(all_of, Standing(3.0))
    assert (older.has_ended, younger.has_ended, other.has_ended) == (True, False, False)
    assert join(all_of, Standing(3.0, is_busy=True))
    assert younger.has_ended
    assert join(all_of, Standing(3.0, is_busy=True))
    assert not join(all_of, Standing(3.0))  # all of them are answered: there is no room
    assert len(all_of) == MAX_OF_ADDRESS + 1


async def test_all_connections_together_are_bounded_also_of_a_proxy(caplog: pytest.LogCaptureFixture) -> None:
    all_of = Browsers(["10.0.0.0/8"])
    many = [Standing(float(number)) for number in range(MAX_CONNECTIONS + 100)]
    assert all(join(all_of, each, "10.1.2.3") for each in many)
    assert len(all_of) == MAX_CONNECTIONS
    assert [each.has_ended for each in many] == [True] * 100 + [False] * MAX_CONNECTIONS
    assert said(caplog).count("\n") == 0
    assert "there are as many connections as there may be" in said(caplog)


@pytest.mark.parametrize(
    ("proxies", "address", "bound"),
    [
        ((), "192.0.2.1", MAX_OF_ADDRESS),
        ((), "2001:db8::1", MAX_OF_ADDRESS),
        ((), "", MAX_CONNECTIONS),
        (("*",), "192.0.2.1", MAX_CONNECTIONS),
        (("192.0.2.0/24", "::1"), "192.0.2.1", MAX_CONNECTIONS),
        (("192.0.3.0/24", "::1"), "192.0.2.1", MAX_OF_ADDRESS),
    ],
)
async def test_a_proxy_and_a_socket_of_this_machine_may_have_all_places(
    proxies: tuple[str, ...], address: str, bound: int
) -> None:
    all_of = Browsers(proxies)
    for number in range(MAX_CONNECTIONS + 1):
        join(all_of, Standing(float(number)), address)
    assert len(all_of) == bound


async def test_what_has_left_is_forgotten() -> None:
    all_of = Browsers()
    many = [Standing() for _ in range(10)]
    for number, each in enumerate(many):
        join(all_of, each, f"192.0.2.{number}")
        each.end()
        each.end()
    assert (len(all_of), dict(all_of._of_address)) == (0, {})


class _Transport:
    """A transport that a test fills."""

    buffered = 0

    def get_write_buffer_size(self) -> int:
        return self.buffered


async def test_what_is_taken_slowly_is_given_more_time_than_a_head() -> None:
    one: Any = object.__new__(BrowserConnection)
    one.transport, one.cycle, one.since, one._paused_at = _Transport(), None, 0.0, None
    assert (one.is_overdue(HEAD - 0.1), one.is_overdue(HEAD)) == (False, True)
    one.transport.buffered = 1
    assert (one.is_overdue(TAKING_SECONDS - 0.1), one.is_overdue(TAKING_SECONDS)) == (False, True)
