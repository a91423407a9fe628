"""The command as a real process, on a server of this folder's own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardq import Client, Queue
from tests.cli.forks import Forks
from tests.servers import Server, ServerKind, available

FORKS = Forks()


@pytest.fixture(scope="session")
def cli_server() -> Iterator[Server]:
    kinds: list[ServerKind] = available()
    with Server(kinds[0] if kinds else None) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def forks_end() -> Iterator[None]:
    """The process that commands are forked from ends with the tests of this folder."""
    yield
    FORKS.close()


@dataclass
class Told:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Command:
    """Runs `python -m shardq.cli`; `terminal` runs it on one of its own.

    `start` and `terminal` start a new Python, and so does a call with an environment of its own.
    """

    url: str
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "shardq.cli", *words], env=self._surroundings(), **settings)

    def _surroundings(self) -> dict[str, str]:
        return os.environ | {"SHARDQ_URL": self.url, "COLUMNS": "80"} | self.environment

    def __call__(self, *words: str, stdin: bytes = b"") -> Told:
        if not self.environment:
            code, out, err = FORKS.run(words, self._surroundings(), stdin)
            return Told(code, out.decode(), err.decode())
        pipe = subprocess.PIPE
        with self.start(*words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            out, err = process.communicate(stdin, timeout=150)
        return Told(process.returncode, out.decode(), err.decode())

    def terminal(self, *words: str, typed: str = "") -> Told:
        """Run it on a terminal, with *typed* waiting there; all that appeared on it."""
        ours, theirs = pty.openpty()
        os.write(ours, typed.encode())
        with self.start(*words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            shown = b"".join(_chunks(ours))
        os.close(ours)
        return Told(process.returncode, shown.decode(), "")


def _chunks(file: int) -> Iterator[bytes]:
    """What is written to a terminal until the last writer closes it, which Linux tells as an error."""
    try:
        while chunk := os.read(file, 65_536):
            yield chunk
    except OSError:
        return


@pytest.fixture
def cli(cli_server: Server) -> Command:
    cli_server.start()
    cli_server.run("FLUSHALL")
    return Command(cli_server.url)


@pytest.fixture
def queue(cli_server: Server, cli: Command) -> Iterator[Queue]:
    """The queue `jobs` on that server, created."""
    with Client.from_url(cli_server.url) as client:
        jobs = client.queue("jobs", streams=8, max_deliveries=3)
        jobs.read_many(1)
        yield jobs
