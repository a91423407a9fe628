"""`shardq purge`: empty a queue."""

from __future__ import annotations

import argparse

from shardq.cli.exits import FAILED, OK
from shardq.cli.parsing import Commands, add_queue, add_yes, command
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = "Removes all that is undelivered or delayed, for good. What is in flight and the dead letters stay."


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "purge", run, "empty a queue", about=ABOUT, examples="  shardq purge jobs --yes")
    add_queue(parser)
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Ask, then remove."""
    queue, now = shell.existing(args.queue)
    what = f"{now.backlog:,} undelivered and {now.delayed:,} delayed messages"
    if not shell.confirm(f"Remove {what} of queue {args.queue!r} for good?", yes=args.yes):
        return FAILED
    removed = queue.purge()
    shell.tell(f"{plural(removed, 'message')} removed", {"queue": args.queue, "purged": removed})
    return OK
