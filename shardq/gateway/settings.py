"""The settings of a gateway, and their checks."""

from __future__ import annotations

import importlib.util
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from shardq.arguments import seconds, whole
from shardq.errors import ConfigError

MIB = 1024 * 1024
EXTRA = 64 * 1024
"""Bytes that a request may have besides its payload."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway listens on and what it grants. Sizes are bytes, times are seconds.

    `capacity` and `fifo_bytes` bound what is received of one connection and not taken by the storage yet. A token may
    have lower bounds of its own. `remember` is for how long Redis knows the ids of clients that release them, and
    `release_after` how long the gateway waits before it lets Redis forget a released one.
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
    max_connections: int = 256
    connections_per_token: int = 64
    max_age: float | None = None
    keepalive: float = 20.0
    grace: float = 25.0
    remember: float = 7 * 86_400.0
    release_after: float = 60.0
    router: str = "default"

    def __post_init__(self) -> None:
        """Check the settings. ConfigError for a bad one, and for one that would serve strangers."""
        check_extra()
        whole("capacity", self.capacity, 1, 100_000)
        whole("max_message", self.max_message, 1, 64 * MIB)
        whole("fifo_bytes", self.fifo_bytes, self.max_message, 1024 * MIB, "at least max_message")
        whole("max_connections", self.max_connections, 1, 10_000)
        whole("connections_per_token", self.connections_per_token, 1, 10_000)
        seconds("keepalive", self.keepalive, 1, 3600)
        seconds("grace", self.grace, 0, 3600)
        seconds("release_after", self.release_after, 0, 86_400)
        if self.max_age is not None:
            seconds("max_age", self.max_age, 1, 30 * 86_400)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key belong together: give both or neither")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("--client-ca needs TLS: give --tls-cert and --tls-key, too")
        if self.tls_cert is None and not self.insecure and not self.is_local:
            raise ConfigError("without TLS tokens cross the network as clear text: give --tls-cert, or --insecure")
        if self.tokens is None and not (self.insecure and self.is_local):
            raise ConfigError("without --tokens everybody may write: that needs --insecure, and a loopback address")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.listen.startswith("unix:"):
            return True
        host, colon, port = self.listen.rpartition(":")
        if not colon or not port.isdigit():
            raise ConfigError("--listen must be HOST:PORT or unix:PATH")
        try:
            return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            return False

    def read_tls(self) -> tuple[bytes, bytes, bytes | None] | None:
        """Return key, certificate chain and the clients' authority, as PEM; None without TLS. ConfigError."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        try:
            authority = None if self.client_ca is None else self.client_ca.read_bytes()
            return self.tls_key.read_bytes(), self.tls_cert.read_bytes(), authority
        except OSError as error:
            raise ConfigError(f"a file for TLS cannot be read: {error}") from None


def check_extra() -> None:
    """Check that the packages of the extra `gateway` are here. ConfigError if one is missing."""
    for package in ("grpc", "grpc_health"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"the gateway needs {package}, which is not here: pip install 'shardq[gateway]'")
