"""Sockets on which a program listens: HOST:PORT, or a path."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shardq.arguments import shown
from shardq.errors import ConfigError

UNIX: Final = "unix:"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""How a system answers that has no IPv6."""


def check_address(name: str, listen: str) -> str:
    """Return *listen* if it is HOST:PORT, with any host or none, or unix:PATH. Else ConfigError, which says *name*."""
    host, colon, port = listen.rpartition(":")
    is_port = bool(_PORT.fullmatch(port)) and int(port) < 2**16
    is_place = bool(colon) and is_port and (":" not in host or "]" in host)
    if "\0" in listen or not (is_place or (listen.startswith(UNIX) and listen != UNIX)):
        more = (
            ""
            if not colon or host == "unix" or is_port
            else f"; the port is a number from 0 to 65535, not {shown(port)}"
        )
        raise ConfigError(f"{name} must be HOST:PORT or unix:PATH, such as :9464, 127.0.0.1:9464 or [::1]:9464{more}")
    return listen


def listeners(listen: str) -> list[socket.socket]:
    """Return sockets that listen on all addresses that *listen* stands for; without a host on all. OSError."""
    if listen.startswith(UNIX):
        return [on_path(Path(listen.removeprefix(UNIX)))]
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    found: list[socket.socket] = []
    try:
        for family, *_, place in socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            same = found[0].getsockname()[1] if found else place[1]  # port 0 is the same one on all addresses
            where: tuple[Any, ...] = (place[0], same, *place[2:])
            try:
                found.append(_created(family, where, both=not found))
            except OSError as error:
                if host or not found or error.errno not in _ABSENT:
                    raise
    except OSError:
        for each in found:
            each.close()
        raise
    return found


def _created(family: int, where: tuple[Any, ...], *, both: bool) -> socket.socket:
    """Return a socket that listens; on `::` for IPv4, too, if *both* and possible: else another socket has that."""
    dual = both and family == socket.AF_INET6 and where[0] == "::" and socket.has_dualstack_ipv6()
    created = socket.create_server(where, family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=dual)
    created.setblocking(False)
    return created


def address_of(listen: str, opened: list[socket.socket]) -> str:
    """Return where sockets listen that were *opened* for *listen*: with the real port if 0 was asked for."""
    return listen if listen.startswith(UNIX) else f"{listen.rpartition(':')[0]}:{opened[0].getsockname()[1]}"


def on_path(path: Path) -> socket.socket:
    """Return a socket that listens on *path*; what this user's process has left there is removed. OSError."""
    with suppress(OSError):
        found = path.lstat()
        is_own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
        if is_own and answer_of(path) == errno.ECONNREFUSED:
            path.unlink()  # of a process that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def answer_of(path: Path) -> int:
    """Return how a socket answers, as an errno. One that lets others wait, perhaps on purpose, is not waited for."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path))
