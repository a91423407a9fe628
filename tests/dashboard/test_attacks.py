"""Attacks on a page that is served as `shardq serve dashboard` serves it: each is refused, and told in the log."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import ssl
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from packaging.requirements import Requirement
from starlette.applications import Starlette
from starlette.requests import Request

from shardq import AsyncClient
from shardq.dashboard import Person, Role, app
from shardq.dashboard.guesses import MAX_GUESSES
from shardq.dashboard.live import MAX_STREAMS, MAX_STREAMS_A_PERSON
from shardq.dashboard.serving import PageServer, PageSettings, ServingComplaints
from shardq.errors import ConfigError
from tests.dashboard.asking import TokenFile, hello, said, scenes
from tests.house.doc_blocks import ROOT
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.once


class Site:
    """A page that is served, and connections to it."""

    def __init__(self, server: PageServer, page: Starlette) -> None:
        self.address, self.live = server.address, page.state.live
        self.origin = self.address.rstrip("/")
        self._open = ExitStack()

    def connect(self) -> http.client.HTTPConnection:
        found = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        self._open.callback(found.close)
        return found

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Ask once. The answer of a stream stays open."""
        named = {"connection": "close"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connect()
        connection.request(method, path, None if body is None else json.dumps(body), named)
        answer = connection.getresponse()
        self._open.callback(answer.close)  # and so it is kept until then
        return answer

    def own(self, path: str, body: Any, **headers: str) -> http.client.HTTPResponse:
        """POST as a script of the page does."""
        return self.ask(path, "POST", body, **{"origin": self.origin, "x_shardq": "page", **headers})

    def close(self) -> None:
        self._open.close()


Serve = Callable[..., Site]


@pytest.fixture
def serve(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    scenes(monkeypatch, overview=hello)
    with ExitStack() as opened:

        def served(**options: Any) -> Site:
            return opened.enter_context(_served(server.url, **options))

        yield served


@contextmanager
def _served(url: str, settings: PageSettings | None = None, **options: Any) -> Iterator[Site]:
    made: list[Starlette] = []

    def make(client: AsyncClient) -> Starlette:
        made.append(app(client, **options))
        return made[0]

    page = PageServer(settings or PageSettings("127.0.0.1:0"), lambda: AsyncClient.from_url(url), make)
    page.open()
    site = Site(page, made[0])
    try:
        yield site
    finally:
        page.close()
        site.close()


def header_says(request: Request) -> Person | None:
    """Who asks is who says so: a team's proxy may do it like this."""
    name = request.headers.get("x-user")
    return Person(name, Role.ADMIN) if name else None


@pytest.fixture
def people(tmp_path: Path) -> TokenFile:
    found = TokenFile(tmp_path / "people.toml")
    found.add("mara", "act")
    return found


LIVE = "/live?scene=overview"


def test_a_thousand_streams_of_one_person_take_ten_places(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    site = serve(auth=header_says)
    statuses = [site.ask(LIVE, x_user="mallory").status for _ in range(1000)]
    assert statuses == [200] * MAX_STREAMS_A_PERSON + [429] * (1000 - MAX_STREAMS_A_PERSON)
    assert site.ask(LIVE, x_user="mara").status == 200
    assert site.live.streams == MAX_STREAMS_A_PERSON + 1
    assert "refused 'GET /live' of mallory: too many streams" in said(caplog)
    assert len(said(caplog).splitlines()) < 100
    site.close()
    eventually(lambda: site.live.streams == 0 and site.live.asks_nothing(), what="an end of all streams")


def test_a_thousand_people_take_two_hundred_places(serve: Serve) -> None:
    site = serve(auth=header_says)
    statuses = [site.ask(LIVE, x_user=f"p{number}").status for number in range(MAX_STREAMS + 50)]
    assert statuses == [200] * MAX_STREAMS + [429] * 50
    assert site.ask("/scene/overview", x_user="mara").status == 200


def test_another_origin_and_another_name_of_the_host_are_refused(
    serve: Serve, people: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve(people=people.path)
    cookie = _login(site, people.tokens["mara"])
    assert site.own("/logout", {}, origin="http://evil.example.com", cookie=cookie).status == 403
    assert site.ask("/me", cookie=cookie, host="evil.example.com").status == 421  # its name leads here, for a moment
    assert site.ask("/me", cookie=cookie, sec_fetch_site="cross-site", sec_fetch_mode="cors").status == 403
    assert site.ask("/me", cookie=cookie).status == 200
    assert "it comes from another origin" in said(caplog)
    assert "the host of its address is not known" in said(caplog)


def test_a_guesser_is_slowed(serve: Serve, people: TokenFile, caplog: pytest.LogCaptureFixture) -> None:
    site = serve(people=people.path)
    statuses = [site.own("/login", {"token": f"shardq_{number}"}).status for number in range(5 * MAX_GUESSES)]
    assert statuses[:MAX_GUESSES] == [403] * MAX_GUESSES
    assert statuses.count(429) > MAX_GUESSES
    assert "nobody has this token" in said(caplog)
    assert "too many wrong tokens" in said(caplog)


def test_a_session_that_was_fixed_before_the_login_stays_worthless(serve: Serve, people: TokenFile) -> None:
    site = serve(people=people.path)
    name = _login(site, people.tokens["mara"]).partition("=")[0]
    fixed = f"{name}=attacker"
    answer = site.own("/login", {"token": people.tokens["mara"]}, cookie=fixed)
    assert answer.status == 204
    assert "attacker" not in str(answer.headers["set-cookie"])
    assert site.ask("/me", cookie=fixed).status == 204


def test_files_beside_the_page_cannot_be_had(serve: Serve) -> None:
    site = serve()
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/js/../../app.py", "//etc/passwd", "/%00", "/js"):
        assert site.ask(path).status in (400, 404), path


def test_what_is_no_request_ends_nothing_and_is_not_told(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    site = serve()
    caplog.clear()
    for junk in (b"\0" * 100, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/9\r\n\r\n"):
        connection = site.connect()
        connection.connect()
        connection.sock.sendall(junk)
        assert b" 400 " in connection.sock.recv(100)
        connection.close()
    assert site.ask("/").status == 200
    assert not caplog.records  # strangers decide how often that is


@pytest.mark.parametrize("path", ["/login", "/act/pause"])
def test_a_body_that_does_not_come_is_not_waited_for(
    serve: Serve, people: TokenFile, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.dashboard.bodies.PATIENCE", 0.05)
    site = serve(people=people.path, actions=True)
    connection = site.connect()
    connection.putrequest("POST", path)
    sent = {"origin": site.origin, "x-shardq": "page", "cookie": _login(site, people.tokens["mara"])}
    for name, value in (sent | {"content-length": "100"}).items():
        connection.putheader(name, value)
    connection.endheaders(b'{"')
    assert connection.getresponse().status in (400, 403)


def test_the_page_ends_while_people_look(serve: Serve) -> None:
    site = serve()
    stream = site.ask(LIVE)
    assert stream.readline() == b"retry: 1000\n"
    site.live.close()
    assert b"retry" not in stream.read()


def test_the_page_can_be_served_by_tls(server: Server, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(cert)
    settings = PageSettings("127.0.0.1:0", tls_cert=cert, tls_key=key)
    with _served(server.url, settings) as site:
        assert site.address.startswith("https://127.0.0.1:")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        connection = http.client.HTTPSConnection(urlsplit(site.address).netloc, timeout=60, context=context)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()


def test_the_word_of_a_proxy_is_believed_if_it_is_one(serve: Serve, people: TokenFile, caplog: Any) -> None:
    plain = serve(people=people.path)
    plain.own("/login", {"token": "shardq_x"}, x_forwarded_for="192.0.2.7")
    assert "of 127.0.0.1: nobody has this token" in said(caplog)
    behind = serve(settings=PageSettings("127.0.0.1:0", proxies=["127.0.0.1"]), people=people.path)
    behind.own("/login", {"token": "shardq_x"}, x_forwarded_for="192.0.2.7")
    assert "of 192.0.2.7: nobody has this token" in said(caplog)


def test_a_network_of_proxies_is_believed(serve: Serve, people: TokenFile, caplog: Any) -> None:
    """uvicorn knows networks from 0.31 on, so the extra asks for that at least."""
    behind = serve(settings=PageSettings("127.0.0.1:0", proxies=["127.0.0.0/8"]), people=people.path)
    behind.own("/login", {"token": "shardq_x"}, x_forwarded_for="192.0.2.7")
    assert "of 192.0.2.7: nobody has this token" in said(caplog)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bounds = next(each.specifier for each in map(Requirement, extras["dashboard"]) if each.name == "uvicorn")
    assert "0.30.6" not in bounds
    assert "0.31.0" in bounds


def test_an_address_that_is_taken_is_an_error_that_says_so(serve: Serve, server: Server) -> None:
    site = serve()
    taken = PageSettings(urlsplit(site.address).netloc)
    with pytest.raises(ConfigError, match="cannot listen on"), _served(server.url, taken):
        pass


async def test_a_crowd_is_one_line_of_the_log_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop, crowded = asyncio.get_running_loop(), ServingComplaints()
    for _ in range(100):
        crowded(loop, {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many open files")})
    assert said(caplog) == "no more browsers can connect: Too many open files (see ulimit -n)"
    crowded(loop, {"message": "something else", "exception": OSError(errno.EPIPE, "Broken pipe")})
    assert "something else" in caplog.text


def test_a_certificate_that_cannot_be_used_is_an_error_that_says_so(server: Server, tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("no certificate")
    for path in (tmp_path / "pem", tmp_path / "nothing"):
        settings = PageSettings("127.0.0.1:0", tls_cert=path, tls_key=path)
        with (
            pytest.raises(ConfigError, match="the certificate or its key cannot be used"),
            _served(server.url, settings),
        ):
            pass
    with pytest.raises(ConfigError, match="a proxy is an IP address, or \\* for any neighbour, not 'nginx'"):
        PageSettings("127.0.0.1:0", proxies=["10.0.0.0/8", "::1", "*", "nginx"])
    with pytest.raises(ConfigError, match="both a certificate and its key"):
        PageSettings("127.0.0.1:0", tls_cert=tmp_path)


def _login(site: Site, token: str) -> str:
    answer = site.own("/login", {"token": token})
    assert answer.status == 204
    return str(answer.headers["set-cookie"]).partition(";")[0]
