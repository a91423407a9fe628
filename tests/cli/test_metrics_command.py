"""`shardq serve metrics`: the numbers of queues over HTTP, until a signal ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.cli.metrics import Follower
from shardq.cli.program import parser
from shardq.cli.working import _arguments
from shardq.telemetry.family import Family, packed
from shardq.telemetry.instruments import CONSUMED, SLOTS
from shardq.telemetry.sample import Sample
from tests.cli.conftest import Command
from tests.exporter.test_text import values
from tests.servers import free_ports
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
        assert got(every) == (503, "Redis does not answer, or not as it should\n")  # nobody knows which there are
        process.terminate()
        errors = process.communicate(timeout=150)[1].decode()
    assert process.returncode == 0
    assert errors.startswith("shardq: Redis does not answer yet: ")
    assert "password" not in errors + str(told)


@pytest.mark.runs_in("test-all")
def test_what_is_wrong_is_one_line_before_it_serves(cli: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, said in (
            (("--listen", f"127.0.0.1:{port}"), f"cannot listen on 127.0.0.1:{port}: Address already in use"),
            (("--listen", "9464"), "the address must be HOST:PORT or unix:PATH"),
            ((), "say where to --listen"),
            (("--listen", ":0", "--tenants", "51"), "--tenants may be 50 at most"),
            (("--listen", ":0", "-q", "a b"), "queue name"),
            (("--listen", f"unix:{tmp_path}/no/s"), "cannot listen on unix:"),
        ):
            told = cli("serve", "metrics", *words)
            assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told.err
            assert said in told.err


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


def counted(family: Family) -> dict[str, Any]:
    return {sample.instrument.text: sample.value for sample in family.samples()}


def framed(*samples: Sample) -> bytes:
    """Samples as a process tells them."""
    raw = packed(samples)
    return struct.pack(">I", len(raw)) + raw


def test_a_process_that_has_ended_is_no_longer_followed_though_its_pipe_is_open() -> None:
    """What was in the pipe is still taken; what is there in part is not."""
    family = Family(list)
    ours, theirs = os.pipe()
    try:
        follower = Follower(ours, family)
        os.write(theirs, framed(Sample(CONSUMED, (), 1), Sample(SLOTS, (), 4)))
        eventually(lambda: counted(family) == {CONSUMED.text: 1, SLOTS.text: 4})
        os.write(theirs, framed(Sample(CONSUMED, (), 7), Sample(SLOTS, (), 4)) + b"\0\0\1")
        follower.end()
        eventually(lambda: counted(family) == {CONSUMED.text: 7}, what="only what it has counted is left")
        with pytest.raises(BrokenPipeError):
            eventually(lambda: os.write(theirs, b"x") == 0)
    finally:
        os.close(theirs)


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff", b"\0\0\0\3abc", b"\0\0\0\0", b"\0"])
def test_what_is_no_number_in_a_pipe_does_nothing(raw: bytes) -> None:
    family = Family(list)
    ours, theirs = os.pipe()
    follower = Follower(ours, family)
    os.write(theirs, framed(Sample(CONSUMED, (), 1)))
    os.write(theirs, raw)
    os.close(theirs)
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "shardq-metrics"])
    follower.end()
    assert counted(family) in ({CONSUMED.text: 1}, {})


FORKS = """
import os, signal, sys
from shardq.cli.metrics import told_to

with told_to(int(sys.argv[1])):
    if (pid := os.fork()) == 0:
        sys.stdin.read()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_worker_process_forks_does_not_hold_its_pipe() -> None:
    ours, theirs = os.pipe()
    with subprocess.Popen([sys.executable, "-c", FORKS, str(theirs)], pass_fds=(theirs,), stdin=PIPE) as process:
        os.close(theirs)
        assert process.wait(60) == -signal.SIGKILL
        assert select.select([ours], [], [], 60)[0], "the pipe has ended, while the forked process lives"
        assert os.read(ours, 1) == b""
    os.close(ours)
