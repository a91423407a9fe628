"""The listener serves a few paths, and no stranger can fill it, hold it up, or have it do something else."""

from __future__ import annotations

import contextlib
import http.client
import logging
import random
import socket
import ssl
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from shardq import BackendTimeout, ConfigError
from shardq.exporter import listener as module
from shardq.exporter.listener import MAX_REQUEST, THREADS, HttpRequest, Listener, Refusal, Reply, Route
from shardq.exporter.places import MAX_CONNECTIONS, MAX_MADE, MAX_UNSENT
from tests.servers import free_ports
from tests.waiting import eventually

BODY = "numbers\n"
Open = Callable[..., Listener]


def metrics(_: HttpRequest) -> Reply:
    return Reply(BODY, "text/plain; version=0.0.4; charset=utf-8")


def shown(request: HttpRequest) -> Reply:
    return Reply(f"{request.path!a} {request.rest!a} {dict(request.query)!a} {request.accept!a}")


def fails(_: HttpRequest) -> Reply:
    raise ZeroDivisionError


def away(_: HttpRequest) -> Reply:
    raise BackendTimeout("no answer from secret-host:6379")


def refuses(_: HttpRequest) -> Reply:
    raise Refusal(404, "there is no queue 'x'")


ROUTES: dict[str, Route] = {
    "/metrics": metrics,
    "/healthz": Reply("alive\n"),
    "/queues/": shown,
    "/fails": fails,
    "/away": away,
    "/refuses": refuses,
}


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens listeners, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_one(listen: str = "127.0.0.1:0", routes: dict[str, Route] | None = None) -> Listener:
            listener = Listener(listen, ROUTES if routes is None else routes)
            listener.open()
            stack.callback(listener.close)
            return listener

        yield open_one


@pytest.fixture
def listener(opened: Open) -> Listener:
    return opened()


def port_of(listener: Listener) -> int:
    return int(listener.address.rpartition(":")[2])


def connected(listener: Listener, timeout: float = 60.0) -> socket.socket:
    """A connection to it."""
    return socket.create_connection(("127.0.0.1", port_of(listener)), timeout)


def sent(listener: Listener, raw: bytes) -> bytes:
    """All that comes back for some bytes, until the connection ends."""
    with connected(listener) as stream:
        with contextlib.suppress(OSError):  # it may have been closed meanwhile
            stream.sendall(raw)
        return rest_of(stream)


def rest_of(stream: socket.socket) -> bytes:
    """All that still comes on a connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := stream.recv(65_536):
            found += more
    return found


def status_of(raw: bytes) -> int:
    """The status of a reply."""
    assert raw.startswith(b"HTTP/1.1 "), raw[:200]
    return int(raw.split(b" ", 2)[1])


def body_of(raw: bytes) -> bytes:
    """What follows the header of a reply."""
    return raw.partition(b"\r\n\r\n")[2]


def got(listener: Listener, path: str = "/metrics", method: str = "GET", **fields: str) -> tuple[int, str]:
    """The status and the body of a request as a program makes it."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(listener), timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, headers=fields)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_path_is_served(listener: Listener) -> None:
    assert got(listener) == (200, BODY)
    assert got(listener, "/metrics?name=x") == (200, BODY)
    assert got(listener, "/healthz") == (200, "alive\n")
    assert got(listener, "/queues/a%2Fb:c?x=1&y=%20", Accept="application/json")[1] == (
        "'/queues/a/b:c' 'a/b:c' {'x': '1', 'y': ' '} 'application/json'"
    )


def test_head_has_all_but_the_body(listener: Listener) -> None:
    whole, head = (sent(listener, b"%s /metrics HTTP/1.1\r\n\r\n" % method) for method in (b"GET", b"HEAD"))
    lines = [[line for line in raw.split(b"\r\n") if not line.startswith(b"Date")] for raw in (whole, head)]
    assert lines[0][-1] == BODY.encode()
    assert lines[0][:-1] == lines[1][:-1]
    assert b"Content-Length: %d" % len(BODY) in lines[1]
    assert body_of(head) == b""


def test_a_reply_says_nothing_of_python(listener: Listener) -> None:
    for raw in (b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /nothing HTTP/1.1\r\n\r\n", b"NONSENSE\r\n\r\n"):
        reply = sent(listener, raw)
        assert b"python" not in reply.lower()
        assert b"Server:" not in reply
        assert b"X-Content-Type-Options: nosniff" in reply


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        (b"get /metrics HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT redis:6379 HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nabcde", 413),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 413),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /m\xe9 HTTP/1.1\r\n\r\n", 400),
        (b"GET /queues/%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET /queues/x?a=%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nnothing\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"b" * MAX_REQUEST + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /queues/x?" + b"&".join(b"a%d=" % n for n in range(500)) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /fails HTTP/1.1\r\n\r\n", 500),
        (b"GET /away HTTP/1.1\r\n\r\n", 503),
        (b"GET /refuses HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_what_is_not_served_is_one_plain_line(listener: Listener, raw: bytes, status: int) -> None:
    reply = sent(listener, raw)
    body = body_of(reply).decode()
    assert status_of(reply) == status
    assert (body.count("\n"), body[-1], b"Content-Type: text/plain; charset=utf-8" in reply) == (1, "\n", True)
    assert "secret-host" not in body
    assert "Traceback" not in body
    assert (b"Allow: GET, HEAD" in reply) is (status == 405)
    assert got(listener) == (200, BODY)


def test_a_refusal_of_head_has_no_body(listener: Listener) -> None:
    reply = sent(listener, b"HEAD /nothing HTTP/1.1\r\n\r\n")
    assert (status_of(reply), body_of(reply)) == (404, b"")


def test_a_host_is_not_believed(listener: Listener) -> None:
    for host in ("evil.example", "a b", '"><script>', "x" * 1000):
        reply = sent(listener, f"GET /nothing HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert status_of(reply) == 404
        assert host.encode() not in reply


def test_what_follows_a_request_is_not_served(listener: Listener) -> None:
    """Pipelining: the first request has its reply, and the connection ends with it."""
    reply = sent(listener, b"GET /metrics HTTP/1.1\r\n\r\n" * 100)
    assert reply.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in reply
    assert body_of(reply) == BODY.encode()


def test_a_request_may_come_in_pieces(listener: Listener) -> None:
    with connected(listener) as stream:
        for each in b"GET /metrics HTTP/1.1\r\n\r\n":
            stream.sendall(bytes([each]))
        assert status_of(rest_of(stream)) == 200


@pytest.mark.parametrize("raw", [b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\n"])
def test_who_sends_slowly_is_cut_off(opened: Open, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    listener = opened()
    began = time.monotonic()
    with connected(listener) as stream:
        stream.sendall(raw)
        assert rest_of(stream) == b""
    assert 0.2 < time.monotonic() - began < 30


def test_who_sends_a_byte_now_and_then_is_cut_off(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    listener, pause = opened(), threading.Event()
    began = time.monotonic()
    with connected(listener) as stream, contextlib.suppress(OSError):  # a reset, or a broken pipe
        while time.monotonic() - began < 60:
            stream.sendall(b"a")
            pause.wait(0.05)
    assert time.monotonic() - began < 30


def test_who_does_not_read_is_cut_off(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLY", 0.5)
    listener = opened(routes={"/metrics": Reply("x" * 50_000_000)})
    with connected(listener) as stream:
        stream.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        eventually(lambda: not len(listener._places), what="the connection is gone")
        assert len(rest_of(stream)) < 50_000_000


def test_silent_connections_keep_nobody_out(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """1,000 that send nothing, or a half of a request, and never end."""
    held: list[socket.socket] = []
    try:
        for number in range(1_000):
            held.append(connected(listener))
            if number % 2:
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\nA: ")
        assert got(listener) == (200, BODY)
        assert len(listener._places) <= MAX_CONNECTIONS
        assert listener.turned_away >= 1_000 - MAX_CONNECTIONS
        names = [each.name for each in threading.enumerate() if each.name.startswith("shardq-reply")]
        assert len(names) <= THREADS
    finally:
        for each in held:
            each.close()
    eventually(lambda: not len(listener._places), what="those that have gone are forgotten")
    assert caplog.records == []


def test_silent_connections_keep_nobody_out_where_there_is_tls(caplog: pytest.LogCaptureFixture) -> None:
    """They have not even begun a handshake, or send what is none."""
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(ours)
    authority.configure_trust(theirs)
    listener = Listener("127.0.0.1:0", ROUTES, tls=ours)
    listener.open()
    held: list[socket.socket] = []
    try:
        for number in range(1_000):
            held.append(connected(listener))
            if number % 2:
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        connection = http.client.HTTPSConnection("127.0.0.1", port_of(listener), context=theirs, timeout=60)
        connection.request("GET", "/metrics")
        assert connection.getresponse().read().decode() == BODY
        connection.close()
        assert len(listener._places) <= MAX_CONNECTIONS
        assert listener.turned_away > 0
    finally:
        for each in held:
            each.close()
        listener.close()
    assert caplog.records == []


def test_those_that_keep_their_replies_keep_nobody_out(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """They have asked, and read nothing, and never close."""
    held: list[socket.socket] = []
    try:
        for number in range(2 * MAX_CONNECTIONS):
            held.append(connected(listener))
            held[-1].sendall(b"GET /%s HTTP/1.1\r\n\r\n" % (b"metrics", b"healthz", b"nothing")[number % 3])
            assert len(listener._places) <= MAX_CONNECTIONS
        assert got(listener, "/healthz") == (200, "alive\n")
        assert status_of(rest_of(held[0])) == 200, "what was sent to one that had to go still arrives"
        eventually(lambda: not len(listener._places), what="the others are not waited for")
    finally:
        for each in held:
            each.close()
    assert caplog.records == []


def test_slow_readers_of_large_pages_fill_no_memory(opened: Open) -> None:
    """Of pages that differ, at most 32 MB are kept, and the oldest go; and what is small is served."""
    size = 1_500_000
    listener = opened(routes={"/metrics": lambda _: Reply("x" * size), "/healthz": Reply("alive\n")})
    held: list[socket.socket] = []
    tracemalloc.start()
    try:
        for _ in range(MAX_CONNECTIONS):
            held.append(slow_reader(listener))
            assert listener._places.unsent <= MAX_UNSENT
        eventually(lambda: listener.turned_away >= MAX_CONNECTIONS - MAX_UNSENT // size - MAX_MADE)
        for _ in range(3):
            assert got(listener, "/healthz") == (200, "alive\n")
        eventually(lambda: tracemalloc.get_traced_memory()[0] < MAX_UNSENT + 24_000_000)
        assert tracemalloc.get_traced_memory()[1] < MAX_UNSENT + 100_000_000
        assert len(body_of(sent(listener, b"GET /metrics HTTP/1.1\r\n\r\n"))) == size
    finally:
        tracemalloc.stop()
        for each in held:
            each.close()
    eventually(lambda: not len(listener._places))
    assert listener._places.unsent == 0


def test_slow_readers_of_one_page_share_its_bytes(opened: Open) -> None:
    page = Reply(b"x" * 8_000_000)
    listener = opened(routes={"/metrics": lambda _: page})
    held = [slow_reader(listener) for _ in range(50)]
    try:
        eventually(lambda: len(listener._places) == 50 and listener._places.unsent == 8_000_000)
        assert listener.turned_away == 0
    finally:
        for each in held:
            each.close()


def slow_reader(listener: Listener) -> socket.socket:
    """A connection that asked for a page, and does not read it."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stream.settimeout(60)
    stream.connect(("127.0.0.1", port_of(listener)))
    stream.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    return stream


def test_too_many_slow_replies_leave_places_for_fixed_ones(opened: Open) -> None:
    gate = threading.Event()

    def slow(_: HttpRequest) -> Reply:
        gate.wait(60)
        return Reply(BODY)

    listener = opened(routes={"/slow": slow, "/healthz": Reply("alive\n")})
    held = [connected(listener) for _ in range(MAX_CONNECTIONS)]
    try:
        for each in held:
            each.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert got(listener, "/healthz") == (200, "alive\n")
        gate.set()
        statuses = Counter(status_of(rest_of(each)) for each in held)
        assert statuses == {200: MAX_MADE, 503: MAX_CONNECTIONS - MAX_MADE}
    finally:
        gate.set()
        for each in held:
            each.close()


def test_many_at_once_are_all_served(listener: Listener) -> None:
    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda _: got(listener), range(500)))
    assert set(replies) == {(200, BODY)}


def test_a_reply_that_takes_long_holds_up_no_other(opened: Open) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: HttpRequest) -> Reply:
        begun.release()
        gate.wait(60)
        return Reply(BODY)

    listener = opened(routes={"/slow": slow, "/healthz": Reply("alive\n")})
    with ThreadPoolExecutor(THREADS + 2) as pool:
        waiting = [pool.submit(got, listener, "/slow") for _ in range(THREADS + 2)]
        for _ in range(THREADS):
            assert begun.acquire(timeout=60)
        assert got(listener, "/healthz") == (200, "alive\n")
        gate.set()
        assert {each.result() for each in waiting} == {(200, BODY)}


def test_a_reply_that_takes_too_long_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLY", 0.3)
    gate = threading.Event()
    listener = opened(routes={"/slow": lambda _: Reply(str(gate.wait(60)))})
    assert got(listener, "/slow")[0] == 503
    gate.set()


def test_bytes_at_random_do_no_harm(listener: Listener, rng: random.Random) -> None:
    words = [b"GET", b"HEAD", b" ", b"/metrics", b"HTTP/1.1", b"\r\n", b"\r\n\r\n", b"\0", b":", b"\xff\xfe", b"%"]
    for _ in range(300):
        raw = b"".join(rng.choices(words, k=rng.randrange(1, 12)))
        with connected(listener) as stream:
            stream.sendall(raw)
            stream.shutdown(socket.SHUT_WR)
            reply = rest_of(stream)
        assert reply == b"" or status_of(reply) in (200, 400, 404, 405, 413, 431, 505)
    assert got(listener) == (200, BODY)


def test_what_fails_is_logged_once_a_minute(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="shardq.exporter"):
        for _ in range(20):
            assert got(listener, "/fails")[0] == 500
            assert got(listener, "/away")[0] == 503
    assert len(caplog.records) == 1


def test_it_ends_in_order(opened: Open) -> None:
    """Who waits for a reply gets it; who has sent nothing is closed; nobody else is let in."""
    gate, begun = threading.Event(), threading.Event()

    def slow(_: HttpRequest) -> Reply:
        begun.set()
        gate.wait(60)
        return Reply(BODY)

    listener = opened(routes={"/slow": slow})
    port = port_of(listener)
    with ThreadPoolExecutor(2) as pool, connected(listener) as idle:
        waiting = pool.submit(got, listener, "/slow")
        assert begun.wait(60)
        closing = pool.submit(listener.close)
        assert rest_of(idle) == b""
        gate.set()
        assert waiting.result() == (200, BODY)
        closing.result()
    with pytest.raises(OSError):  # noqa: PT011 (refused, in the words of the system)
        socket.create_connection(("127.0.0.1", port), 5)
    again = Listener(f"127.0.0.1:{port}", ROUTES)
    again.open()
    assert got(again) == (200, BODY)
    again.close()
    again.close()


@pytest.mark.parametrize("listen", [":0", "[::]:0"])
def test_without_a_host_it_listens_on_all_addresses(opened: Open, listen: str) -> None:
    port = port_of(opened(listen))
    for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
        with socket.create_connection((host, port), 60) as stream:
            stream.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert status_of(rest_of(stream)) == 200


def test_it_listens_on_a_path(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    listener = opened(f"unix:{path}")
    assert listener.address == f"unix:{path}"
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(60)
        stream.connect(str(path))
        stream.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert status_of(rest_of(stream)) == 200
    listener.close()
    assert not path.exists()


@pytest.mark.parametrize(
    "listen",
    [
        "",
        "x",
        "9464",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "::1:9464",
        "a:b",
        "unix:",
        "x\0:1",
    ],
)
def test_a_bad_address_is_one_clear_line(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"^the address must be HOST:PORT or unix:PATH, such as [^\n]*$"):
        Listener(listen, ROUTES)


def test_a_port_that_is_taken_is_one_clear_line(listener: Listener, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot listen on 127.0.0.1:\d+: Address already in use$"):
        Listener(listener.address, ROUTES).open()
    with pytest.raises(ConfigError, match=r"^cannot listen on nowhere.invalid:1: [^\n]+$"):
        Listener("nowhere.invalid:1", ROUTES).open()
    with pytest.raises(ConfigError, match=r"^cannot listen on unix:.*: No such file or directory$"):
        Listener(f"unix:{tmp_path}/no/s", ROUTES).open()


def test_a_port_is_free_again_if_it_never_opened() -> None:
    [port] = free_ports(1)
    taken = Listener(f"127.0.0.1:{port}", ROUTES)
    taken.bind()
    with pytest.raises(ConfigError):
        Listener(f"127.0.0.1:{port}", ROUTES).bind()
    taken.close()
    other = Listener(f"127.0.0.1:{port}", ROUTES)
    other.open()
    assert got(other) == (200, BODY)
    other.close()
