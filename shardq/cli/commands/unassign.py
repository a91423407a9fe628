"""`shardq unassign`: remove assignments, so that shard keys are dealt by hashing again."""

from __future__ import annotations

import argparse

from shardq.cli.commands.assign import add_names, names_of
from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.parsing import Commands, add_queue, add_yes, command
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """New messages of these shard keys go to the streams that hashing deals them. Messages that wait stay in their
streams and are read there. Afterwards the queue can be resized to fewer streams than the assignments named."""


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq unassign jobs acct-1 --yes\n  shardq unassign jobs --all --yes"
    parser = command(commands, "unassign", run, "deal shard keys by hashing again", about=ABOUT, examples=examples)
    add_queue(parser)
    add_names(parser)
    parser.add_argument("--all", action="store_true", help="all assigned shard keys")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Ask for confirmation, then remove the assignments."""
    names = names_of(args)
    if bool(names) == args.all:
        raise UsageError("give either shard keys or --all")
    queue, _ = shell.existing(args.queue)
    whose = "all assigned shard keys" if args.all else plural(len(names), "shard key")
    if not shell.confirm(f"Deal {whose} of queue {args.queue!r} by hashing again?", yes=args.yes):
        return FAILED
    left = queue.unassign(None if args.all else names)
    shell.show(f"{plural(len(left), 'shard key')} still assigned", {"queue": args.queue, "assigned": len(left)})
    return OK
