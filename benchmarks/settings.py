"""The settings of a benchmark, and the server that it runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from shardq.embedded import EmbeddedServer


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
    seed: int = 1

    def quick(self) -> Settings:
        """Settings that take a tenth of the time: for a first impression, not for publishing."""
        return self.scaled(rounds=3, messages=1000, seconds=4.0)

    def scaled(self, *, rounds: int, messages: int, seconds: float) -> Settings:
        """These settings with other amounts."""
        kept = {name: getattr(self, name) for name in ("batch", "payload", "streams", "per_shard", "tenants")}
        return Settings(
            rounds, messages, **kept, seconds=seconds, rate=self.rate, aof=self.aof, link=self.link, seed=self.seed
        )

    def traffic(self) -> list[tuple[bytes, str]]:
        """Payloads and shard keys, the same for every contender."""
        dice = random.Random(self.seed)
        return [(dice.randbytes(self.payload), f"tenant-{dice.randrange(self.tenants)}") for _ in range(self.messages)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a benchmark runs."""

    server: EmbeddedServer
    settings: Settings

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.server.url

    def described(self, repeated: str = "") -> str:
        """Server, durability, machine and repetitions, without which a figure means nothing."""
        chosen = self.settings
        link = "TCP on loopback" if chosen.link == "tcp" else "unix socket"
        durability = "AOF everysec" if chosen.aof == "everysec" else "no AOF"
        machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
        repeated = repeated or f"{chosen.rounds} interleaved rounds"
        return (
            f"{self.server.name}, {durability}, {link}; {machine}, Python {platform.python_version()}; "
            f"{repeated}, payloads of {chosen.payload:,} B"
        )


@contextlib.contextmanager
def place(settings: Settings) -> Iterator[Place]:
    """Start a private server with the durability of the settings; SHARDQ_REDIS_SERVER names the program."""
    with contextlib.ExitStack() as stack:
        directory = None
        if settings.aof == "everysec":
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardq-bench-"))
        yield Place(
            stack.enter_context(EmbeddedServer(directory, port=0 if settings.link == "tcp" else None)), settings
        )
