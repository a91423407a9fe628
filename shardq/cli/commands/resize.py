"""`shardq resize`: change the number of streams."""

from __future__ import annotations

import argparse

from shardq.cli.exits import FAILED, OK
from shardq.cli.parsing import Commands, add_queue, add_yes, command, number
from shardq.cli.shell import Shell

ABOUT = """Live: nothing is lost or stopped, and few tenants move to other streams. When there are fewer,
the higher ones are read until they are empty."""


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq resize jobs 128 --yes"
    parser = command(commands, "resize", run, "change a queue's number of streams", about=ABOUT, examples=examples)
    add_queue(parser)
    parser.add_argument("streams", metavar="N", type=number(1), help="how many streams it shall have")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Ask, then resize."""
    queue, now = shell.existing(args.queue)
    question = f"Change queue {args.queue!r} from {now.wanted} to {args.streams} streams?"
    if not shell.confirm(question, yes=args.yes):
        return FAILED
    read, written = queue.resize(args.streams)
    text = f"{written} streams" + ("" if read == written else f"; {read} are read until the higher ones are empty")
    shell.tell(text, {"queue": args.queue, "streams_read": read, "streams_written": written})
    return OK
