"""The settings of a benchmark, and the server that it runs on."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.traffic import traffic
from shardq.embedded import EmbeddedServer, find_server
from shardq.errors import ServerUnfit

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Settings:
    """The size of a run. Every benchmark takes what it needs of it."""

    rounds: int = 7
    messages: int = 5000
    batch: int = 100
    payload: int = 100
    streams: int = 64
    per_shard: int = 6
    tenants: int = 1000
    seconds: float = 20.0
    rate: float = 40.0
    aof: str = "off"
    link: str = "tcp"
    server: str = ""
    base: str = ""
    only: str = ""
    seed: int = 1

    def quick(self) -> Settings:
        """Settings that take a tenth of the time: for a first impression, not for publishing."""
        return self.scaled(rounds=3, messages=1000, seconds=4.0)

    def scaled(self, *, rounds: int, messages: int, seconds: float) -> Settings:
        """These settings with other amounts."""
        return replace(self, rounds=rounds, messages=messages, seconds=seconds)

    def traffic(self) -> list[tuple[bytes, str]]:
        """Payloads and shard keys, the same for every contender."""
        return traffic(self.messages, self.payload, self.tenants, self.seed)

    def places(self) -> list[Settings]:
        """These settings for each server program and link that they mean: one of each, or several."""
        servers = _programs() if self.server == "all" else [self.server]
        links = ["tcp", "unix"] if self.link == "both" else [self.link]
        return [replace(self, server=server, link=link) for server in servers for link in links]


def _programs() -> list[str]:
    """What this machine has, one program per product: the default one, then those on PATH."""
    found: dict[str, str] = {}
    for name in (None, "valkey-server", "redis-server"):
        with contextlib.suppress(ServerUnfit):
            program = find_server(name)
            found.setdefault(program.product, program.path)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a benchmark runs."""

    server: EmbeddedServer
    settings: Settings

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.server.url

    @property
    def product(self) -> str:
        """What the server is: "valkey" or "redis"."""
        return self.server.name.split()[0]

    def described(self, repeated: str = "") -> str:
        """Server, durability, machine and repetitions, without which a figure means nothing."""
        chosen = self.settings
        link = "TCP on loopback" if chosen.link == "tcp" else "unix socket"
        durability = "AOF everysec" if chosen.aof == "everysec" else "no AOF"
        repeated = repeated or f"{chosen.rounds} interleaved rounds"
        return f"{self.server.name}, {durability}, {link}; {machine()}; {repeated}, payloads of {chosen.payload:,} B"


def machine() -> str:
    """Cores, load, Python and commit: what is measured, and on what."""
    cores = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    return f"{cores}, Python {platform.python_version()}, commit {commit_of(ROOT)}"


@functools.cache
def commit_of(folder: Path) -> str:
    """The commit of a checkout, with a + where files that git knows have changed since; "unknown" without git."""
    words = ("git", "describe", "--always", "--match=", "--abbrev=8", "--dirty=+")
    try:
        return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@contextlib.contextmanager
def place(settings: Settings) -> Iterator[Place]:
    """Start a private server with the durability of the settings; `server` or SHARDQ_REDIS_SERVER names the program."""
    with contextlib.ExitStack() as stack:
        directory = None
        if settings.aof == "everysec":
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardq-bench-"))
        port = 0 if settings.link == "tcp" else None
        yield Place(stack.enter_context(EmbeddedServer(directory, port=port, binary=settings.server or None)), settings)
