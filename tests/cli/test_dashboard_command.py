"""`shardq serve dashboard`: the page, until a signal ends it, and tokens for the people who look at it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shardq.dashboard import Person, Role
from shardq.dashboard.people import People
from tests.cli.conftest import Command
from tests.servers import free_ports

PIPE = subprocess.PIPE


@contextlib.contextmanager
def serving(url: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The process, and what it printed first."""
    listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
    process = Command(url).start("serve", "dashboard", "--json", *listen, *words, stdout=PIPE, stderr=PIPE)
    with process:
        try:
            assert process.stdout
            yield process, json.loads(process.stdout.readline() or b"{}")
        finally:
            process.kill()


@contextlib.contextmanager
def got(told: dict[str, Any], path: str = "/") -> Iterator[http.client.HTTPResponse]:
    """The answer to a path."""
    connection = http.client.HTTPConnection(urlsplit(told["address"]).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        yield connection.getresponse()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_ends_it_also_while_somebody_looks(cli: Command, number: signal.Signals) -> None:
    with serving(cli.url) as (process, told):
        assert told["actions"] is False
        with got(told) as answer:
            assert (answer.status, b"<title>shardq" in answer.read()) == (200, True)
        with got(told, "/live?scene=overview") as stream:
            assert (stream.status, stream.readline()) == (200, b"retry: 1000\n")
            process.send_signal(number)
            assert process.communicate(timeout=150) == (b"", b"")
    assert process.returncode == 0


def test_people_log_in_with_the_token_that_the_command_made(cli: Command, tmp_path: Path) -> None:
    (made,) = cli("serve", "token", "jonas", "--role", "act", "--json").objects
    assert made["sha256"] == sha256(made["token"].encode()).hexdigest()
    assert made["token"] not in made["toml"]
    assert tomllib.loads(made["toml"])["people"] == [{"name": "jonas", "role": "act", "sha256": made["sha256"]}]
    path = tmp_path / "people.toml"
    path.write_text(made["toml"])
    found = People.read(path).find(made["token"])
    assert found is not None
    assert found.person == Person("jonas", Role.ACT)
    with serving(cli.url, "--people", str(path), "--actions") as (_, told), got(told) as answer:
        assert (answer.status, answer.headers["location"], told["actions"]) == (303, "login", True)


@pytest.mark.runs_in("test-all")
def test_it_begins_before_redis_does(tmp_path: Path) -> None:
    url = f"redis://user:password@127.0.0.1:{free_ports(1)[0]}"
    with serving(url) as (process, told):
        with got(told) as answer:
            assert answer.status == 200
        process.terminate()
        errors = process.communicate(timeout=150)[1].decode()
    assert process.returncode == 0
    assert "password" not in errors + str(told)


@pytest.mark.runs_in("test-all")
def test_what_is_wrong_is_one_line_before_it_serves(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "people.toml").write_text("people = 3")
    missing, wrong = str(tmp_path / "nothing"), str(tmp_path / "people.toml")
    for words, said in (
        (("--listen", "8321"), "the address must be HOST:PORT or unix:PATH"),
        (("--actions",), "--actions are for people who are known"),
        (("--people", missing), "cannot be read"),
        (("--people", wrong), "must have tables [[people]]"),
        (("--tls-cert", wrong), "both a certificate and its key"),
        (("--tls-cert", wrong, "--tls-key", wrong), "the certificate or its key cannot be used"),
    ):
        listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
        told = cli("serve", "dashboard", *listen, *words)
        assert (told.code, told.out) == (2, ""), words
        assert said in " ".join(told.err.split()), words
    told = cli("serve", "token", "x", "--role", "view", "--allow-queue", "jobs")
    assert (told.code, "not both" in told.err) == (2, True)


@pytest.mark.runs_in("test-all")
def test_an_address_that_others_reach_is_warned_of(cli: Command) -> None:
    with serving(cli.url, "--listen", ":0") as (process, _):
        process.terminate()
        errors = " ".join(process.communicate(timeout=150)[1].decode().split())
    assert "browsers of other machines are refused until --host-name" in errors
    assert "anybody who reaches the address may look" in errors
