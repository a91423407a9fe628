"""`shardq len`: print how many messages are undelivered or in flight."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.parsing import Commands, add_queue, command
from shardq.cli.shell import Shell

ABOUT = "Counts the messages that are undelivered or in flight. Exit code 3 if there is no such queue."


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq len jobs\n  shardq len jobs --json | jq .len"
    add_queue(command(commands, "len", run, "print a queue's length", about=ABOUT, examples=examples))


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Print the length."""
    length = shell.queue(args.queue).len()
    shell.show(str(length), {"queue": args.queue, "len": length})
    return OK
