"""What an edge producer is told: where the gateway is, where the spool is, and how much it may hold."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final, Literal

from shardq.arguments import shown
from shardq.errors import ConfigError

OnFull = Literal["raise", "drop_oldest"]
Durability = Literal["process", "disk"]

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
LEAST_BYTES: Final = 64 * 1024
MAX_PAYLOAD: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """All settings but the payload's codec. Sizes are bytes.

    `gateway` is "host:port" or "unix:PATH". `token` is the bearer token. TLS is used if `root_certificates` (PEM) are
    given, or `tls` is true for those of the system; `certificate` and `key` (PEM) are the client's own. `name` is what
    the gateway's log calls this producer.

    `spool` is the file in which messages wait for their acks. It holds at most `max_bytes`; beyond that a message is
    refused with SpoolFull ("raise"), or the oldest messages are lost for it ("drop_oldest", counted). With `durability`
    "process" a message survives the end of the process, with "disk" also that of the machine.

    `compress` sends payloads as zstd frames where that makes them smaller, and `dictionary` trains one. The `level` is
    higher while messages wait for a link and the processor does not.
    """

    gateway: str
    spool: str | os.PathLike[str]
    token: str = ""
    name: str = "edge"
    tls: bool = False
    root_certificates: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    max_bytes: int = 1024**3
    on_full: OnFull = "raise"
    durability: Durability = "process"
    max_payload: int = 1024 * 1024
    compress: bool = True
    level: int = 3
    dictionary: bool = True
    in_memory: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Check. ConfigError."""
        if not re.fullmatch(r"unix:.+|.+:\d{1,5}", self.gateway):
            raise ConfigError(f"gateway must be host:port or unix:PATH, not {shown(self.gateway)}")
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name must be 1 to 100 letters, digits and ._-, not {shown(self.name)}")
        if self.on_full not in ("raise", "drop_oldest"):
            raise ConfigError(f"on_full must be raise or drop_oldest, not {shown(self.on_full)}")
        if self.durability not in ("process", "disk"):
            raise ConfigError(f"durability must be process or disk, not {shown(self.durability)}")
        if self.max_bytes < LEAST_BYTES:
            raise ConfigError(f"max_bytes must be at least {LEAST_BYTES:,}")
        if not 1 <= self.max_payload <= MAX_PAYLOAD:
            raise ConfigError(f"max_payload must be 1 to {MAX_PAYLOAD:,}")
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("certificate and key go together: give both, or neither")
        if self.token and not (self.is_secure or self._is_local):
            raise ConfigError("a token would cross the network in the clear: set tls=True or root_certificates")

    @property
    def is_secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or self.root_certificates is not None or self.certificate is not None

    @property
    def _is_local(self) -> bool:
        host = self.gateway.rpartition(":")[0]
        return self.gateway.startswith("unix:") or host in ("localhost", "127.0.0.1", "[::1]")
