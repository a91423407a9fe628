"""`shardq unbind`: take a binding back."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK, Nothing
from shardq.cli.parsing import Commands, add_queue, add_router, command
from shardq.cli.shell import Shell

ABOUT = """The pattern is the one that was bound, word for word; others of the queue stay. Exit code 3 when there is no
such binding."""


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq unbind 'orders.*.created' billing"
    parser = command(commands, "unbind", run, "take a binding back", about=ABOUT, examples=examples)
    parser.add_argument("pattern", metavar="PATTERN", help="as it was bound")
    add_queue(parser)
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Unbind."""
    if not shell.client.unbind(args.pattern, args.queue, router=args.router):
        raise Nothing(f"router {args.router!r} has no binding of {args.pattern!r} to {args.queue!r}")
    value = {"pattern": args.pattern, "queue": args.queue, "router": args.router, "changed": True}
    shell.tell("unbound", value)
    return OK
