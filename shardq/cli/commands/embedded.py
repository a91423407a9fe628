"""`shardq embedded`: run a server in the foreground."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from shardq.cli.exits import FAILED, OK
from shardq.cli.output import remark
from shardq.cli.parsing import Args, Parser, argument, command, takes
from shardq.cli.shell import Shell
from shardq.cli.values import number
from shardq.worker.signals import stop_signals

ABOUT = """Runs a Redis or Valkey server of this machine until SIGTERM or Ctrl-C; prints its URL first. It listens on
127.0.0.1 without a password, or with --socket only on a unix socket of this user. Without --directory the data is in
memory and is gone at the end. With --directory an append-only file there (synced every second) survives restarts. It
is meant for development and tests, and for programs on one machine."""

EXAMPLES = """  shardq embedded                 # then: shardq write jobs hello -t me
  shardq embedded --directory jobs.d
  shardq embedded --port 0 > url &    # any free port"""

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _add_where(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=number(0), default=6379, metavar="P", help="TCP port, 0 for any free one (6379)")
    where.add_argument("--socket", action="store_true", help="listen on a unix socket only, on no TCP port")


@command(ABOUT, EXAMPLES)
@argument("--directory", metavar="D", help="keep the data in this directory (in memory)")
@takes(_add_where)
def run(args: Args, shell: Shell) -> int:
    """Run the server until a signal comes or it dies."""
    for each in stop_signals():
        signal.signal(each, _end)
    from shardq.embedded import (
        EmbeddedServer,
    )  # not every system has one: then this says so, and not the command's help

    with EmbeddedServer(args.directory, port=None if args.socket else args.port) as server:
        shell.show(server.url, {"url": server.url, "server": server.name, "pid": server.pid})
        sys.stdout.flush()
        pause = threading.Event()
        while server.running:
            pause.wait(0.2)
        remark(f"{server.name} ended by itself; was it killed?")
    return FAILED


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Exit, which stops the server. Further signals are ignored, so that nothing interrupts that."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(OK)
