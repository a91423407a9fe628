"""`shardq unassign`: let shard keys be dealt again."""

from __future__ import annotations

import argparse

from shardq.cli.commands.assign import add_names, names_of
from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.parsing import Commands, add_queue, add_yes, command
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """What they have waiting stays where it is, and is read. The queue can then shrink below their streams."""


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq unassign jobs acct-1 --yes\n  shardq unassign jobs --all --yes"
    parser = command(commands, "unassign", run, "let named shard keys be dealt again", about=ABOUT, examples=examples)
    add_queue(parser)
    add_names(parser)
    parser.add_argument("--all", action="store_true", help="all that are assigned")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Ask, then take back."""
    names = names_of(args)
    if bool(names) == args.all:
        raise UsageError("name shard keys, or say --all")
    queue, _ = shell.existing(args.queue)
    whose = "all assigned shard keys" if args.all else plural(len(names), "shard key")
    if not shell.confirm(f"Let {whose} of queue {args.queue!r} be dealt again?", yes=args.yes):
        return FAILED
    left = queue.unassign(None if args.all else names)
    shell.tell(f"{plural(len(left), 'shard key')} still assigned", {"queue": args.queue, "assigned": len(left)})
    return OK
