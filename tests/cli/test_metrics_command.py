"""`shardq serve metrics`: the numbers of queues over HTTP, until a signal ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.cli.program import parser
from shardq.cli.working import _arguments
from tests.cli.conftest import Command
from tests.exporter.test_text import values
from tests.servers import Server, free_ports
from tests.waiting import eventually

PIPE = subprocess.PIPE


@contextlib.contextmanager
def serving(url: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The process, and what it printed first."""
    listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
    process = Command(url).start("serve", "metrics", "--json", *listen, *words, stdout=PIPE, stderr=PIPE)
    with process:
        try:
            assert process.stdout
            yield process, json.loads(process.stdout.readline() or b"{}")
        finally:
            process.kill()


def got(told: dict[str, Any], path: str = "/metrics") -> tuple[int, str]:
    """The status and the body of a path."""
    host, _, port = told["address"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_ends_it(cli: Command, number: signal.Signals) -> None:
    with Client.from_url(cli.url) as client:
        for name in ("jobs", "mails"):
            client.queue(name, streams=1).write(b"x", shard_key="t")
    with serving(cli.url) as (process, told):
        assert told["queues"] is None
        status, text = got(told)
        assert status == 200
        assert values(text, "shardq_queue_backlog") == {(("queue", name),): 1 for name in ("jobs", "mails")}
        assert got(told, "/healthz") == (200, "alive\n")
        assert got(told, "/readyz") == (200, "ready\n")
        process.send_signal(number)
        assert process.communicate(timeout=150) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.runs_in("test-all")
def test_only_the_queues_that_are_named_are_told(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        for name in ("jobs", "mails", "other"):
            client.queue(name, streams=1).write(b"x", shard_key="secret")
    with serving(cli.url, "-q", "jobs", "--queue", "mails", "-q", "jobs", "-q", "nothing") as (_, told):
        assert told["queues"] == ["jobs", "mails", "nothing"]
        text = got(told)[1]
        assert values(text, "shardq_up") == {
            (): 1,
            (("queue", "jobs"),): 1, (("queue", "mails"),): 1
        }  # fmt: skip
        assert "secret" not in text
    with serving(cli.url, "-q", "jobs", "--tenants", "2") as (_, told):
        eventually(lambda: 'tenant="secret"' in got(told)[1])


@pytest.mark.runs_in("test-all")
def test_it_begins_before_redis_does(tmp_path: Path) -> None:
    url = f"redis://user:password@127.0.0.1:{free_ports(1)[0]}"
    with serving(url, "-q", "jobs") as (process, told), serving(url) as (_, every):
        assert (got(told, "/healthz")[0], got(told, "/readyz")) == (200, (503, "Redis does not answer\n"))
        status, text = got(told)
        assert (status, values(text, "shardq_up")) == (200, {(): 0, (("queue", "jobs"),): 0})
        assert "shardq_queue_backlog" not in text
        assert got(every) == (503, "Redis does not answer\n")  # nobody knows which there are
        process.terminate()
        errors = process.communicate(timeout=150)[1].decode()
    assert process.returncode == 0
    assert errors.count("\n") == 1, "it does not say again what it has said"
    assert re.match(r"shardq: \S+Z warning: Redis is away, and nothing is exported until it is back: no answer", errors)
    assert "password" not in errors + str(told)


@pytest.mark.parametrize("name", ["metrics", "scaler"])
def test_a_wrong_password_is_said_and_so_is_that_it_is_right(cli: Command, cli_server: Server, name: str) -> None:
    """Also if nobody asks: it is seen by itself."""
    cli_server.run("ACL", "SETUSER", "looks", "on", ">right", "~*", "&*", "+@all")
    url = cli_server.url.replace("://", "://looks:wrong@")
    words = ("serve", name, "--listen", "127.0.0.1:0", "--json")
    try:
        with Command(url).start(*words, stdout=PIPE, stderr=PIPE) as process:
            assert process.stdout
            assert process.stderr
            told = json.loads(process.stdout.readline())
            first = process.stderr.readline().decode()
            asked = got(told, "/readyz"), got(told)
            cli_server.run("ACL", "SETUSER", "looks", ">wrong")
            second = process.stderr.readline().decode()
            assert got(told, "/readyz") == (200, "ready\n")
            process.terminate()
            assert process.communicate(timeout=150) == (b"", b"")
    finally:
        cli_server.run("ACL", "DELUSER", "looks")
    assert asked == ((503, text := "Redis does not know the user of this process: its log says more\n"), (503, text))
    assert re.match(
        r"shardq: \S+Z warning: nothing is exported until this is mended: Redis does not know this user", first
    )
    assert re.fullmatch(r"shardq: \S+Z Redis answers\n", second)
    assert process.returncode == 0


@pytest.mark.runs_in("test-all")
def test_what_is_wrong_is_one_line_before_it_serves(cli: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, said in (
            (("--listen", f"127.0.0.1:{port}"), f"cannot listen on 127.0.0.1:{port}: Address already in use"),
            (("--listen", "9464"), "the address must be HOST:PORT or unix:PATH"),
            (("--listen", ":0", "--tenants", "51"), "--tenants may be 50 at most"),
            (("--listen", ":0", "-q", "a b"), "queue name"),
            (("--listen", ":99999"), "from 0 to 65535, not '99999'"),
            (("--listen", ":0", "--hash-tenants"), "--hash-tenants is about the labels of --tenants"),
            (("--listen", f"unix:{tmp_path}/no/s"), "cannot listen on unix:"),
        ):
            told = cli("serve", "metrics", *words)
            assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told.err
            assert said in told.err


@pytest.mark.parametrize("name", ["metrics", "scaler"])
def test_where_to_listen_must_be_said(cli: Command, name: str) -> None:
    told = cli("serve", name)
    assert (told.code, told.out) == (2, "")
    assert "[--listen" not in told.err
    assert told.err.splitlines()[-1] == f"shardq serve {name}: the following arguments are required: --listen"


def test_people_are_told_where_it_listens(cli: Command) -> None:
    with Command(cli.url).start("serve", "metrics", "--listen", "127.0.0.1:0", stdout=PIPE) as process:
        assert process.stdout
        line = process.stdout.readline().decode()
        process.terminate()
    assert re.fullmatch(r"metrics on 127\.0\.0\.1:\d+, of all queues at unix:\S+\n", line)


def test_only_the_process_that_was_started_is_told_where_to_listen() -> None:
    """One that is begun anew is, and worker processes below it are not."""
    args = parser().parse_args(["worker", "app:handle", "-q", "jobs", "--metrics", ":9464", "--processes", "2"])
    assert "--metrics=:9464" in _arguments(args)
    assert [word for word in _arguments(args, 1) if "metrics" in word] == []
