"""Wait until a socket can be read or written, on each Python that runs clients.

`select.poll` takes files of any number. It is missing on Windows, and where eventlet took it away. There
`select.select` waits, which has no such bound on Windows and under eventlet.
"""

from __future__ import annotations

import select
import socket
from typing import Any, Final

WAITS: Final = hasattr(socket, "MSG_DONTWAIT")
"""Whether a socket can wait by itself when it receives, and yet not when it sends: on Windows it cannot."""


class ServerReadiness:
    """Says when *sock* can be read, or with *writing* written. Also when it has ended: then reading says so."""

    __slots__ = ("_poll", "_reads", "_writes")

    def __init__(self, sock: Any, *, writing: bool = False) -> None:
        self._reads: tuple[Any, ...] = () if writing else (sock,)
        self._writes: tuple[Any, ...] = (sock,) if writing else ()
        # Looked up each time: a library such as gevent may have replaced it since this module was imported.
        kind = getattr(select, "poll", None)
        self._poll = kind() if kind else None
        if self._poll is not None:
            self._poll.register(sock, select.POLLOUT if writing else select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for at most *seconds*. Return whether the socket is ready."""
        if self._poll is not None:
            return bool(self._poll.poll(seconds * 1000))
        return any(select.select(self._reads, self._writes, (), seconds))
