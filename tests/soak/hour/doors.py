"""The doors of the hour beside Redis: a gateway with TLS and an edge producer, the dashboard, the scaler."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trustme

from tests.gateway.conftest import TokenFile
from tests.gateway.test_certificates import Files
from tests.servers import free_ports
from tests.soak.hour.notes import Notes
from tests.soak.hour.staff import START, Post
from tests.waiting import eventually

DISK_MIB: Final = 64
"""The size of the disk on which the spool lies."""

PATIENCE: Final = 10.0
"""Seconds that who polls waits for an answer."""


class Doors:
    """Where they listen, and what they need: a token, certificates, a disk for the spool."""

    def __init__(self, folder: Path, url: str, history: Path, seed: int) -> None:
        self._url, self._history, self._seed = url, history, seed
        self._ports = dict(zip(("gateway", "dashboard", "scaler"), free_ports(3), strict=True))
        self.disk, self.has_disk = folder / "disk", False
        self._tokens, self._authority, self._files = TokenFile(folder / "tokens"), trustme.CA(), Files(folder)
        self._token = self._tokens.add("edge")
        self._root = folder / "authority"
        self._root.write_bytes(self._authority.cert_pem.bytes())
        self.renew()

    @property
    def gateway(self) -> tuple[str, int]:
        """Host and port of the gateway."""
        return "127.0.0.1", self._ports["gateway"]

    def renew(self) -> None:
        """Put a fresh certificate of the same authority where the gateway reads it."""
        self._files.write(self._authority)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """The spool's disk, of its own if this user may mount one."""
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self.disk)]
        with contextlib.suppress(OSError):
            self.has_disk = subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode == 0
        try:
            yield
        finally:
            if self.has_disk:
                subprocess.run(["umount", "-l", str(self.disk)], check=True)

    def posts(self) -> list[Post]:
        """The processes."""
        host, port = self.gateway
        files = ["--tls-cert", str(self._files.cert), "--tls-key", str(self._files.key)]
        serve = ["-m", "shardq.cli", "serve"]
        edge = ["-m", "tests.soak.hour.edges", f"localhost:{port}", self._token, str(self._root)]
        edge += [str(self.disk / "spool"), str(self._history), "{name}", str(self._seed)]
        return [
            Post("gateway", [
                *serve, "gateway", "--redis", self._url, "--listen", f"{host}:{port}", "--timeout", "20s", "--tokens",
                str(self._tokens.path), *files,
            ], steady=True),
            Post("dashboard", self._polled("dashboard"), steady=True),
            Post("scaler", self._polled("scaler"), steady=True),
            Post("edge", edge, first=True),
        ]  # fmt: skip

    def _polled(self, name: str) -> list[str]:
        return [
            "-m", "shardq.cli", "serve", name, "--url", self._url, "--listen", f"127.0.0.1:{self._ports[name]}",
        ]  # fmt: skip

    def wait_ready(self) -> None:
        """Return once the gateway has stored something, and the others answer."""
        eventually(lambda: self.stored() > 0, START, every=0.2, what="the gateway stores")
        for who in ("dashboard", "scaler"):
            eventually(lambda who=who: self._answers(who), START, every=0.2, what=f"the {who} answers")  # type: ignore[misc]

    def _answers(self, who: str) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._ports[who]), timeout=PATIENCE).close()
            return True
        return False

    def stored(self) -> int:
        """How many messages are noted as stored."""
        return sum(path.read_bytes().count(b'"stored"') for path in self._history.glob("*.sent"))

    def poll(self, notes: Mapping[str, Notes]) -> None:
        """Ask the dashboard and the scaler as browsers and autoscalers do."""
        for who, path in (("dashboard", "/"), ("scaler", "/queues/plain"), ("scaler", "/metrics")):
            self._ask(notes["plain"], who, path)

    def _ask(self, notes: Notes, who: str, path: str) -> None:
        at, outcome = time.monotonic(), "ok"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[who]}{path}", timeout=PATIENCE) as answer:
                body = answer.read()
            if path.startswith("/queues"):
                json.loads(body)
        except urllib.error.HTTPError as error:
            outcome = "BackendTimeout" if error.code == 503 else f"HTTP {error.code}"
        except OSError as error:
            outcome = "BackendTimeout" if isinstance(error, TimeoutError) else str(error)
        now = time.monotonic()
        notes.add("told", who=who, call=f"GET {path}", at=at, answered=now, timeout=PATIENCE, outcome=outcome)
