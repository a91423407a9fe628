"""The settings of an edge producer: where the gateway is, where the spool is, and how much it may hold."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shardq.arguments import path, seconds, shown, whole
from shardq.errors import ConfigError

OnFull = Literal["raise", "drop_oldest"]
Durability = Literal["process", "disk"]

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
MIN_BYTES: Final = 8 * 1024 * 1024
MAX_BYTES: Final = 2**46
MAX_PAYLOAD: Final = 4 * 1024 * 1024
LEVELS: Final = (1, 22)
"""Those of zstd that make frames smaller."""
MAX_HOLD: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """All settings but the payload's codec. Sizes are bytes.

    `gateway` is "host:port" or "unix:PATH". `token` is the bearer token. TLS is used if `root_certificates` (PEM) are
    given, or `tls` is true for those of the system; `certificate` and `key` (PEM) are the client's own. `name` is what
    the gateway's log calls this producer.

    `spool` is the file in which messages wait for their acks. With its log it takes at most `max_bytes`; beyond that a
    message is refused with SpoolFull (`on_full` is "raise"), or the oldest are lost for it ("drop_oldest", counted).
    With `durability` "process" a message survives the end of the process, with "disk" also that of the machine.

    A message that the gateway does not take for now is held for `hold` seconds. Messages that were refused for good
    are kept within `max_refused_bytes`, and within a quarter of `max_bytes`.

    `compress` sends payloads as zstd frames where that makes them smaller, and `dictionary` trains one. The `level` is
    9, or 3 while compressing takes most of the time; one that is given is the least. On a full link more is done.

    A payload has at most `max_payload` bytes. Messages that are read from the spool ahead of their turn take at most
    `in_memory`.

    >>> EdgeSettings(gateway="localhost:7443", spool="edge.spool", durability="disk").max_payload
    1048576
    """

    gateway: str
    spool: str | os.PathLike[str]
    token: str = field(default="", repr=False)
    name: str = "edge"
    tls: bool = False
    root_certificates: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    max_bytes: int = 1024**3
    on_full: OnFull = "raise"
    durability: Durability = "process"
    max_payload: int = 1024 * 1024
    compress: bool = True
    level: int | None = None
    dictionary: bool = True
    in_memory: int = 16 * 1024 * 1024
    hold: float = 7 * 86_400.0
    max_refused_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        """Check. ConfigError."""
        self._check_kinds()
        if not re.fullmatch(r"unix:.+|.+:\d{1,5}", self.gateway):
            raise ConfigError(f"gateway must be host:port or unix:PATH, not {shown(self.gateway)}")
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"name must be 1 to 100 letters, digits and ._-, not {shown(self.name)}")
        if self.on_full not in ("raise", "drop_oldest"):
            raise ConfigError(f"on_full must be raise or drop_oldest, not {shown(self.on_full)}")
        if self.durability not in ("process", "disk"):
            raise ConfigError(f"durability must be process or disk, not {shown(self.durability)}")
        whole("max_bytes", self.max_bytes, MIN_BYTES, MAX_BYTES, "the log alone takes half of the least")
        whole("max_payload", self.max_payload, 1, MAX_PAYLOAD)
        if self.level is not None:
            whole("level", self.level, *LEVELS)
        whole("in_memory", self.in_memory, 1, MAX_BYTES)
        whole("max_refused_bytes", self.max_refused_bytes, 0, MAX_BYTES)
        seconds("hold", self.hold, 0, MAX_HOLD)
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("certificate and key go together: give both, or neither")
        if self.token and not (self.is_secure or self._is_local):
            raise ConfigError("a token would cross the network in the clear: set tls=True or root_certificates")

    def _check_kinds(self) -> None:
        """ConfigError if a value is of another type than it must be; secrets are not shown."""
        for name in ("gateway", "token", "name", "on_full", "durability"):
            _check_kind(name, getattr(self, name), str, "a str")
        for name in ("tls", "compress", "dictionary"):
            _check_kind(name, getattr(self, name), bool, "True or False")
        for name in ("root_certificates", "certificate", "key"):
            _check_kind(name, getattr(self, name), (bytes, type(None)), "bytes (PEM), or None")
        path("spool", self.spool)
        if not self.token.isascii() or not self.token.isprintable():
            raise ConfigError("token must be printable ASCII, as `shardq serve token` printed it")

    @property
    def is_secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or self.root_certificates is not None or self.certificate is not None

    @property
    def _is_local(self) -> bool:
        host = self.gateway.rpartition(":")[0]
        return self.gateway.startswith("unix:") or host in ("localhost", "127.0.0.1", "[::1]")


def _check_kind(name: str, value: object, kinds: Any, wanted: str) -> None:
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} must be {wanted}, not {type(value).__name__}")
