"""The directory in which an embedded server lives: its data, socket, log and lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from shardq.clock import SystemClock
from shardq.errors import BackendError

_CLOCK = SystemClock()
_SOCKET = "s"
_SOCKET_LIMIT = 104  # bytes of sun_path on macOS, with the final zero; Linux has 108
_LOCK_GRACE = 1.0  # seconds: a server that was just killed may need a moment to let go
_LOG_LINES = 12


class Home:
    """`data` is where the data lives on; without one everything is in a private temporary directory."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._scratch: Path | None = None

    @property
    def path(self) -> Path:
        """The server's working directory, once made."""
        return self._data or self._made()

    @property
    def socket(self) -> Path:
        """The unix socket, short enough for every system; the same from `make` to `remove`."""
        return (self._scratch or self.path) / _SOCKET

    def make(self) -> None:
        """Make what is missing; a temporary directory also where the path is too long for a socket."""
        if self._data:
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._scratch is None and (self._data is None or _too_long(self._data / _SOCKET)):
            short = not _too_long(Path(tempfile.gettempdir(), "shardq-12345678", _SOCKET))
            self._scratch = Path(tempfile.mkdtemp(prefix="shardq-", dir=None if short else "/tmp"))  # noqa: S108 (0700)

    def remove(self) -> None:
        """Remove what is temporary."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    @contextlib.contextmanager
    def lock(self) -> Iterator[int]:
        """The directory's lock as an open file. A process that inherits it holds the lock for as long as it lives.

        Raises `BackendError` when another one has it.
        """
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = _CLOCK.monotonic() + _LOCK_GRACE
            while not _flock(file):
                if _CLOCK.monotonic() >= deadline:
                    holder = os.pread(file, 10, 0).decode().strip() or "unknown"
                    raise BackendError(f"{self.path} is in use by the server with process id {holder}")
                pause()
            yield file
        finally:
            os.close(file)

    @property
    def log(self) -> Path:
        """The file that takes the server's output."""
        return self.path / "server.log"

    def log_since(self, start: int) -> str:
        """The last lines of the log after byte `start`."""
        text = self.log.read_bytes()[start:].decode(errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])

    def _made(self) -> Path:
        if self._scratch is None:
            raise BackendError("the embedded server is not started")
        return self._scratch


def pause() -> None:
    """Wait for a moment between two looks at another process."""
    threading.Event().wait(0.002)


def _too_long(socket: Path) -> bool:
    return len(os.fsencode(socket)) >= _SOCKET_LIMIT


def _flock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
