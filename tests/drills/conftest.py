"""A server of its own for each drill, workers and commands as real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from shardq import Client, OutOfMemory, Queue
from tests.servers import Server, available, free_ports
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


def fill_up(queue: Queue, refusals: int = 20) -> None:
    """Write until so many writes were refused: between two of them, another client may give memory back."""
    for number in count():
        try:
            queue.write(b"x" * 20_000, shard_key=f"t{number % 5}")
        except OutOfMemory:
            refusals -= 1
            if not refusals:
                return


@dataclass
class Watch:
    """What somebody on call has: a server with queues, and a shell."""

    server: Server
    client: Client
    stack: ExitStack
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.server.url

    def now(self) -> float:
        """The time, by the server's clock."""
        with self.server.client() as raw:
            seconds, micros = raw.time()
        return float(seconds) + float(micros) / 1e6

    def shardq(self, *words: str, columns: int = 80) -> str:
        """Run a command, and return what it printed; its exit code is 0."""
        told = self._run(words, columns)
        assert told.returncode == 0, told
        return told.stdout

    def _run(self, words: tuple[str, ...], columns: int) -> subprocess.CompletedProcess[str]:
        surroundings = os.environ | {"SHARDQ_URL": self.url, "COLUMNS": str(columns)}
        command = [sys.executable, "-m", "shardq.cli", *words]
        return subprocess.run(command, env=surroundings, cwd=ROOT, capture_output=True, text=True, timeout=120)

    def sentence(self) -> str:
        """The first line of `shardq queues`, on a terminal that is wide."""
        return self.shardq("queues", columns=400).splitlines()[0]

    def says(self, holds: Callable[[str], object], within: float = 90.0) -> str:
        """Wait until the first line is as it should be, and return it. In 80 columns it says the same."""
        last = ""

        def said() -> str:
            nonlocal last
            last = self.sentence()
            return last if holds(last) else ""

        eventually(said, within, every=0.5, what=f"the sentence of the drill (not {last!r})")
        assert all(len(line) <= 80 for line in self.shardq("queues").splitlines())
        return last

    def work(self, handler: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        command = [sys.executable, "-m", "shardq.cli", "worker", f"tests.drills.handlers:{handler}", *words]
        process = self.start(command)
        self.workers.append(process)
        return process

    def metrics(self, *words: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start `shardq serve metrics`; the process, and its address."""
        [port] = free_ports(1)
        address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "shardq.cli", "serve", "metrics", "--listen", address, *words]
        process = self.start(command)
        return process, address

    def page(self) -> str:
        """Start `shardq serve dashboard`; its address, once it listens."""
        [port] = free_ports(1)
        self.start([sys.executable, "-m", "shardq.cli", "serve", "dashboard", "--listen", f"127.0.0.1:{port}"])
        eventually(lambda: _listens(port), 60, every=0.1, what="the page")
        return f"http://127.0.0.1:{port}/"

    def start(self, command: list[str], folder: Path = ROOT) -> subprocess.Popen[bytes]:
        """Start a command, which ends with the test."""
        quiet, surroundings = subprocess.DEVNULL, os.environ | {"SHARDQ_URL": self.url}
        process = self.stack.enter_context(
            subprocess.Popen(command, env=surroundings, cwd=folder, stdout=quiet, stderr=quiet)
        )
        self.stack.callback(process.kill)
        return process

    def heard(self, count: int) -> None:
        """Wait until so many workers were heard."""
        eventually(lambda: len(self.client.workers()) >= count, 60, every=0.1, what="workers that tell of themselves")

    def kill_all_workers(self) -> None:
        """As when a machine is gone."""
        for process in self.workers:
            process.send_signal(signal.SIGKILL)
        for process in self.workers:
            process.wait()
        self.workers.clear()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def watching(**options: str) -> Iterator[Watch]:
    """A server with these options, and somebody who watches it."""
    kinds = available()
    with ExitStack() as stack:
        server = stack.enter_context(Server(kinds[0] if kinds else None, options=options))
        client = stack.enter_context(Client.from_url(server.url))
        yield Watch(server, client, stack)


@pytest.fixture
def watch() -> Iterator[Watch]:
    """On a server with enough memory."""
    with watching() as found:
        yield found


@pytest.fixture
def small() -> Iterator[Watch]:
    """On a server with little memory, which evicts nothing."""
    with watching(maxmemory="12mb", **{"maxmemory-policy": "noeviction"}) as found:
        yield found
