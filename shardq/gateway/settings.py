"""The settings of a gateway, and their checks."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardq.arguments import flag, path, seconds, text, whole
from shardq.errors import ConfigError
from shardq.files import MIB
from shardq.gateway.memory import least_memory

if TYPE_CHECKING:
    from shardq.gateway.certificates import Certificates

EXTRA = 64 * 1024
"""Bytes that a request may have besides its payload."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The addresses and bounds of a gateway. Sizes are bytes, times are seconds.

    `capacity` and `fifo_bytes` bound what is received of one connection and not taken by the storage yet. A token may
    have lower bounds of its own. `max_memory` is what the process may take, and `max_ids` how many ids of a token each
    queue remembers. The rates are those of a token that names none; 0 is none. `remember` is for how long Redis knows
    the ids of clients that release them, and `release_after` how long the gateway waits before it lets Redis forget a
    released one.
    """

    listen: str
    tokens: Path | None = None
    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    reflection: bool = False
    capacity: int = 1000
    fifo_bytes: int = 16 * MIB
    max_message: int = MIB
    max_memory: int = 256 * MIB
    max_ids: int = 200_000
    messages_per_second: int = 2_000
    bytes_per_second: int = 20_000_000
    max_connections: int = 256
    connections_per_token: int = 64
    connections_per_address: int = 256
    health: str | None = None
    status_socket: Path | None = None
    max_age: float | None = None
    keepalive: float = 20.0
    grace: float = 25.0
    remember: float = 7 * 86_400.0
    release_after: float = 60.0
    router: str = "default"

    def __post_init__(self) -> None:
        """Check the settings. ConfigError for a bad one, and for one that would serve strangers."""
        text("listen", self.listen)
        text("router", self.router)
        for name in ("insecure", "reflection"):
            flag(name, getattr(self, name))
        if self.health is not None:
            text("health", self.health)
        for name in ("tokens", "tls_cert", "tls_key", "client_ca", "status_socket"):
            if getattr(self, name) is not None:
                path(name, getattr(self, name))
        whole("capacity", self.capacity, 1, 100_000)
        whole("max_message", self.max_message, 1, 64 * MIB)
        whole("fifo_bytes", self.fifo_bytes, self.max_message, 1024 * MIB, "at least max_message")
        least = least_memory(self.max_message)
        whole(
            "max_memory",
            self.max_memory,
            least,
            2**40,
            f"at least {least:,} for messages of {self.max_message:,} bytes",
        )
        whole("max_ids", self.max_ids, 1, 2**31)
        whole("messages_per_second", self.messages_per_second, 0, 2**40)
        whole("bytes_per_second", self.bytes_per_second, 0, 2**40)
        whole("max_connections", self.max_connections, 1, 10_000)
        whole("connections_per_token", self.connections_per_token, 1, 10_000)
        whole("connections_per_address", self.connections_per_address, 1, 10_000)
        seconds("keepalive", self.keepalive, 1, 3600)
        seconds("grace", self.grace, 0, 3600)
        seconds("release_after", self.release_after, 0, 86_400)
        if self.max_age is not None:
            seconds("max_age", self.max_age, 1, 30 * 86_400)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key belong together: give both or neither")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("--client-ca needs TLS: give --tls-cert and --tls-key, too")
        is_local = self.is_local
        if self.tls_cert is None and not self.insecure and not is_local:
            raise ConfigError("without TLS tokens cross the network as clear text: give --tls-cert, or --insecure")
        if self.tokens is None and not (self.insecure and is_local):
            raise ConfigError("without --tokens everybody may write: that needs --insecure, and a loopback address")

    @property
    def addresses(self) -> list[str]:
        """Where it listens: for all, and for health checks."""
        return [self.listen] if self.health is None else [self.listen, self.health]

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the addresses."""
        return all(map(_is_local, self.addresses))

    def certificates(self) -> Certificates | None:
        """Return what the files for TLS have; None without TLS. ConfigError if they are bad."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        from shardq.gateway.certificates import Certificates

        return Certificates(self.tls_cert, self.tls_key, self.client_ca)


def _is_local(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError("--listen and --health must be HOST:PORT or unix:PATH")
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
