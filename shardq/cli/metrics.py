"""`--metrics`: the numbers of a worker, of all of its processes, for Prometheus.

The process that was started listens. Worker processes below it write what they have measured into a pipe, each second
if it has changed, and once more at their end: so one port has the numbers of all, and a process that dies takes nothing
away that it had told.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from shardq.exporter.listener import Listener, Reply, Request, Route
from shardq.exporter.page import Page
from shardq.exporter.poller import Server
from shardq.exporter.queues import build
from shardq.platforms import after_fork
from shardq.telemetry.family import Family, begin_family, end_family, packed, unpacked
from shardq.telemetry.measures import begin_tally, end_tally

if TYPE_CHECKING:
    from shardq.cli.shell import Shell

PERIOD: Final = 1.0
"""Seconds between two times at which a process tells what it has measured."""
MAX_TOLD: Final = 16 * 1024 * 1024
"""Bytes that a process may tell at once."""
READ: Final = 64 * 1024
"""Bytes of a pipe that are read at once."""
_LENGTH: Final = struct.Struct(">I")


def health(server: Server) -> dict[str, Route]:
    """Return the routes that say whether this process lives, and whether Redis answers."""

    def ready(_: Request) -> Reply:
        return Reply("ready\n") if server.is_ready() else Reply("Redis does not answer\n", status=503)

    return {"/healthz": Reply("alive\n"), "/readyz": ready}


@contextlib.contextmanager
def metrics_on(listen: str, shell: Shell, say: Callable[[str], object]) -> Iterator[None]:
    """Serve the numbers of this process and of those that it starts on *listen*, and *say* so. ConfigError."""
    tally = begin_tally()
    family = begin_family(tally.samples)

    clock = shell.client.clock
    page = Page(lambda: [build(), *family.samples()], clock)
    listener = Listener(listen, {"/metrics": page, **health(Server(shell.client, clock))})
    listener.open()
    say(f"metrics on {listener.address}")
    try:
        yield
    finally:
        listener.close()
        end_family()
        end_tally()


@contextlib.contextmanager
def told_to(pipe: int) -> Iterator[None]:
    """Tell the parent process through a *pipe* what this one and those that it starts measure."""
    os.set_inheritable(pipe, False)
    family = begin_family(begin_tally().samples)
    ends, is_open = threading.Event(), threading.Event()
    is_open.set()

    def forget() -> None:
        if is_open.is_set():
            os.close(pipe)

    after_fork(forget)  # what a handler forks may outlive this process, and its end is the end of the pipe

    def tell() -> None:
        last, goes_on = b"", True
        try:
            while goes_on:
                goes_on = not ends.wait(PERIOD)
                now = packed(family.samples())
                if now != last:
                    _write(pipe, _LENGTH.pack(len(now)) + now)
                    last = now
        except OSError:  # the parent has ended
            pass
        finally:
            is_open.clear()
            os.close(pipe)

    teller = threading.Thread(target=tell, name="shardq-metrics", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ends.set()
        teller.join(PERIOD)  # a parent that was stopped keeps nobody from ending


def _write(pipe: int, told: bytes) -> None:
    rest = memoryview(told)  # no file of Python: a process forked meanwhile would write what is left in its buffer
    while rest:
        rest = rest[os.write(pipe, rest) :]


class Follower:
    """Lets *family* have what a process tells through *pipe*, until that ends or `end` is called; in a thread."""

    def __init__(self, pipe: int, family: Family) -> None:
        self._pipe, self._family = pipe, family
        self._ended, self._end = os.pipe()
        threading.Thread(target=self._follow, name="shardq-metrics", daemon=True).start()

    def end(self) -> None:
        """The process has ended: take what is still in the pipe, and wait for no more. Call it once.

        The pipe itself may stay open, for others may have inherited it.
        """
        os.close(self._end)

    def _follow(self) -> None:
        member, buffer = object(), bytearray()
        try:
            for told in self._told():
                buffer += told
                for raw in _taken(buffer):
                    self._family.tell(member, unpacked(raw))
        except OverflowError:  # what runs there is the user's own code
            pass
        finally:
            self._family.end(member)
            os.close(self._pipe)
            os.close(self._ended)

    def _told(self) -> Iterator[bytes]:
        """Yield what comes through the pipe, of what is there after the end at most as much as may be told at once."""
        left = MAX_TOLD
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while left > 0:
                ready = {key.fd for key, _ in selector.select()}
                if self._pipe not in ready:
                    return
                if not (told := os.read(self._pipe, READ)):
                    return
                if self._ended in ready:
                    left -= len(told)
                yield told


def _taken(buffer: bytearray) -> Iterator[bytes]:
    """Take from *buffer* what was told at once and is there whole. OverflowError if one is longer than it may be."""
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        if length > MAX_TOLD:
            raise OverflowError
        if len(buffer) < (whole := _LENGTH.size + length):
            return
        raw = bytes(buffer[_LENGTH.size : whole])
        del buffer[:whole]
        yield raw
