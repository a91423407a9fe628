"""The directory in which an embedded server runs: its data, socket, log and lock.

A process that is killed cannot remove its temporary directory; the next one that starts a server does
(`_remove_abandoned`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shardq.clock import SystemClock
from shardq.errors import BackendError
from shardq.files import is_foreign, open_own, own_folders
from shardq.platforms import posix

with posix("an embedded server"):
    import fcntl

_CLOCK = SystemClock()
_SOCKET = "s"
_LOCK = "lock"
_LOG = "server.log"
_PREFIX = "shardq-"
_ABANDONED = re.compile(rf"{_PREFIX}(\d{{1,9}})-\w+", re.ASCII)
_YOUNG_SECONDS = 60.0  # seconds: a directory that a process of another PID namespace has just made is not locked yet
_SOCKET_LIMIT = 104  # bytes of sun_path on macOS, with the final zero; Linux has 108
_LOCK_GRACE = 1.0  # seconds: a server that was just killed may need a moment to release the lock
_LOG_LINES = 12


class Home:
    """`data` is the directory that keeps the data; if it is None, all files are in a private temporary directory."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._scratch: Path | None = None

    @property
    def path(self) -> Path:
        """The server's working directory; BackendError before `make`."""
        return self._data or self._made()

    @property
    def socket(self) -> Path:
        """The path of the unix socket, which is short enough for every system."""
        return (self._scratch or self.path) / _SOCKET

    def make(self) -> None:
        """Make the directories; a temporary one also if the path of `data` is too long for a socket.

        Raises `BackendError` when that fails.
        """
        try:
            if self._data:
                self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
                if is_foreign(self._data.stat()):
                    raise PermissionError(errno.EPERM, "it belongs to another user", str(self._data))
            if self._scratch is None and (self._data is None or _too_long(self._data / _SOCKET)):
                place = _temporary()
                _remove_abandoned(place)
                self._scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
        except OSError as error:
            raise BackendError(f"the embedded server cannot have its directory: {error}") from error

    def remove(self) -> None:
        """Remove the temporary directory."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    @contextlib.contextmanager
    def lock(self) -> Iterator[int]:
        """The directory's lock as an open file. A process that inherits the file holds the lock until it ends.

        Raises `BackendError` when another server has the lock.
        """
        file = _own(self.path / _LOCK, os.O_RDWR)
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

    def log(self) -> BinaryIO:
        """Open the file that takes the server's output. Raises `BackendError` when it is another user's, or none."""
        return os.fdopen(_own(self.path / _LOG, os.O_RDWR | os.O_APPEND), "a+b")

    def log_since(self, start: int) -> str:
        """The last lines of the log, from the byte `start` on."""
        with self.log() as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])

    def _made(self) -> Path:
        if self._scratch is None:
            raise BackendError("the embedded server is not started")
        return self._scratch


def _own(path: Path, flags: int) -> int:
    try:
        return open_own(path, flags | os.O_CREAT)
    except OSError as error:
        raise BackendError(f"the embedded server cannot use {path}: {error.strerror}; move it away") from None


def pause() -> None:
    """Wait for a moment before another process is examined again."""
    threading.Event().wait(0.002)


def _temporary() -> Path:
    """Where temporary directories are made: the system's directory, or /tmp if that is too long for a socket."""
    place = Path(tempfile.gettempdir())
    return Path("/tmp") if _too_long(place / f"{_PREFIX}1234567-12345678" / _SOCKET) else place  # noqa: S108 (0700)


def _remove_abandoned(place: Path) -> None:
    """Remove the directories of this user whose process was killed, if no server holds their lock any more."""
    with contextlib.suppress(OSError):
        for old in own_folders(place, _PREFIX):
            match = _ABANDONED.fullmatch(old.name)
            if match and not _alive(int(match[1])) and _is_old(old) and not _held(old / _LOCK):
                shutil.rmtree(old, ignore_errors=True)


def _alive(pid: int) -> bool:
    """Whether there is a process with this id, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _is_old(directory: Path) -> bool:
    try:
        return _CLOCK.wall() - directory.lstat().st_mtime > _YOUNG_SECONDS
    except OSError:
        return False


def _held(lock: Path) -> bool:
    """Whether a server holds the lock, which it inherited and holds until it ends."""
    try:
        file = open_own(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not _flock(file)
    finally:
        os.close(file)


def _too_long(socket: Path) -> bool:
    return len(os.fsencode(socket)) >= _SOCKET_LIMIT


def _flock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
