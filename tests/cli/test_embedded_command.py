"""`shardq embedded` runs a server for as long as it runs itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from tests.cli.conftest import Command
from tests.servers import free_ports
from tests.waiting import eventually

PIPE = subprocess.PIPE


def started(*words: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """The process, and what it printed first."""
    process = Command("").start("embedded", "--json", *words, stdout=PIPE, stderr=PIPE)
    assert process.stdout
    return process, json.loads(process.stdout.readline() or b"{}")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_its_url_works_until_a_signal_ends_it(number: signal.Signals) -> None:
    process, told = started("--port", "0")
    with process:
        with Client.from_url(told["url"]) as client:
            client.queue("jobs", create=True).write(b"x", shard_key="t")
        assert Command(told["url"])("stats", "jobs", "--field", "len").out == "1\n"
        process.send_signal(number)
        assert process.communicate(timeout=150) == (b"", b"")
    assert process.returncode == 0
    eventually(lambda: not alive(told["pid"]))


def test_the_plain_output_is_the_url_alone() -> None:
    with Command("").start("embedded", "--socket", stdout=PIPE) as process:
        assert process.stdout
        url = process.stdout.readline()
        process.terminate()
    assert re.fullmatch(rb"unix:///.*\?db=0\n", url)


@pytest.mark.runs_in("test-all")
def test_a_directory_keeps_the_messages(tmp_path: Path) -> None:
    for expected in ("1\n", "2\n"):
        process, told = started("--socket", "--directory", str(tmp_path))
        with process:
            cli = Command(told["url"])
            cli("write", "jobs", "x", "-t", "t", "--create")
            assert cli("stats", "jobs", "--field", "len").out == expected
            process.terminate()
        assert process.returncode == 0


def test_a_server_that_dies_is_told(tmp_path: Path) -> None:
    process, told = started("--socket")
    with process:
        os.kill(told["pid"], signal.SIGKILL)
        error = process.communicate(timeout=150)[1].decode()
    assert process.returncode == 1
    assert re.fullmatch(r"shardq: .*ended by itself.*\n", error)


@pytest.mark.runs_in("test-all")
def test_a_port_that_is_taken_is_one_line() -> None:
    process, told = started("--port", "0")
    with process:
        port = told["url"].rpartition(":")[2].partition("/")[0]
        second = Command("")("embedded", "--port", port)
        process.terminate()
    assert (second.code, second.out) == (1, "")
    assert re.fullmatch(r"shardq: port \d+ is in use .*\n", second.err)


@pytest.mark.runs_in("test-all")
def test_a_killed_command_takes_its_server_along() -> None:
    process, told = started("--port", str(free_ports(1)[0]))
    with process:
        process.kill()
    eventually(lambda: not alive(told["pid"]))
