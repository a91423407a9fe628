"""Sockets: those on which the gateway listens, and those from the door to grpc."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shardq.files import own_folders

PREFIX: Final = "shardq-gateway-"
YOUNG: Final = 60.0
"""Seconds within which a folder is not looked at: its gateway may be about to listen."""


def listeners(listen: str) -> list[socket.socket]:
    """Return sockets that listen on all addresses that *listen* stands for. OSError."""
    if listen.startswith("unix:"):
        return [on_path(Path(listen.removeprefix("unix:")))]
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    found: list[socket.socket] = []
    try:
        for family, *_, place in socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            both = family == socket.AF_INET6 and place[0] == "::" and socket.has_dualstack_ipv6()
            same = found[0].getsockname()[1] if found else place[1]  # port 0 is the same one on all addresses
            where: tuple[Any, ...] = (place[0], same, *place[2:])
            found.append(socket.create_server(where, family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=both))
            found[-1].setblocking(False)
    except OSError:
        for each in found:
            each.close()
        raise
    return found


def on_path(path: Path) -> socket.socket:
    """Return a socket that listens on *path*; what this user's process has left there is removed. OSError."""
    with suppress(OSError):
        found = path.lstat()
        is_own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
        if is_own and _answer_of(path) == errno.ECONNREFUSED:
            path.unlink()  # of a gateway that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def private_folder(now: float) -> Path:
    """Return a new folder that nobody else can reach. Those of gateways that were killed before *now* are removed."""
    for old in own_folders(Path(tempfile.gettempdir()), PREFIX):
        with suppress(OSError):
            is_young = now - old.lstat().st_mtime < YOUNG
            # No socket: it was killed before it listened, or after it had ended that.
            if not is_young and _answer_of(old / "s") in (errno.ECONNREFUSED, errno.ENOENT):
                shutil.rmtree(old)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def _answer_of(path: Path) -> int:
    """Return how a socket answers, as an errno. One that lets others wait, perhaps on purpose, is not waited for."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path))


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
