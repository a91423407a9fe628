"""Sockets from the door to grpc, and the private folder that they lie in."""

from __future__ import annotations

import errno
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from shardq.files import own_folders
from shardq.sockets import answer_of

PREFIX: Final = "shardq-gateway-"
YOUNG_SECONDS: Final = 60.0
"""Seconds within which a folder is not looked at: its gateway may be about to listen."""


def private_folder(now: float) -> Path:
    """Return a new folder that nobody else can reach. Those of gateways that were killed before *now* are removed."""
    for old in own_folders(Path(tempfile.gettempdir()), PREFIX):
        with suppress(OSError):
            is_young = now - old.lstat().st_mtime < YOUNG_SECONDS
            # No socket: it was killed before it listened, or after it had ended that.
            if not is_young and answer_of(old / "s") in (errno.ECONNREFUSED, errno.ENOENT):
                shutil.rmtree(old)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def connected(name: Path, target: Path) -> socket.socket:
    """Return a socket that is connected to *target*, where it is known as *name*. OSError."""
    inner = socket.socket(socket.AF_UNIX)
    try:
        inner.setblocking(False)
        inner.bind(str(name))
        inner.connect(str(target))
    except OSError:
        inner.close()
        raise
    finally:
        name.unlink(missing_ok=True)
    return inner
