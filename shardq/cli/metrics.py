"""`--metrics`: the numbers of a worker, of all of its processes, for Prometheus.

The process that was started listens. Worker processes below it write what they have measured into a pipe, each second
if it has changed, and once more at their end: so one port has the numbers of all, and a process that dies takes nothing
away that it had told.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from shardq.exporter.listener import Listener, Reply, Request, Route
from shardq.exporter.poller import Server
from shardq.exporter.queues import build
from shardq.exporter.text import CONTENT_TYPE, text_of
from shardq.telemetry.family import Family, begin_family, end_family, packed, unpacked
from shardq.telemetry.measures import begin_tally, end_tally

if TYPE_CHECKING:
    from shardq.cli.shell import Shell

PERIOD: Final = 1.0
"""Seconds between two times at which a process tells what it has measured."""
MAX_TOLD: Final = 16 * 1024 * 1024
"""Bytes that a process may tell at once."""
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

    def page(_: Request) -> Reply:
        return Reply(text_of([build(), *family.samples()]), CONTENT_TYPE)

    listener = Listener(listen, {"/metrics": page, **health(Server(shell.client, shell.client.clock))})
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
    ends = threading.Event()

    def tell() -> None:
        last, goes_on = b"", True
        with open(pipe, "wb") as out:
            while goes_on:
                goes_on = not ends.wait(PERIOD)
                now = packed(family.samples())
                if now != last:
                    try:
                        out.write(_LENGTH.pack(len(now)) + now)
                        out.flush()
                    except OSError:  # the parent has ended
                        return
                    last = now

    teller = threading.Thread(target=tell, name="shardq-metrics", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ends.set()
        teller.join(PERIOD)  # a parent that was stopped keeps nobody from ending


def take(pipe: int, family: Family) -> None:
    """Let *family* have what a process tells through *pipe*, until that ends; in a thread."""

    def follow() -> None:
        member = object()
        with open(pipe, "rb") as told:
            while len(head := told.read(_LENGTH.size)) == _LENGTH.size:
                (length,) = _LENGTH.unpack(head)
                if length > MAX_TOLD or len(raw := told.read(length)) < length:
                    break
                family.tell(member, unpacked(raw))
        family.end(member)

    threading.Thread(target=follow, name="shardq-metrics", daemon=True).start()
