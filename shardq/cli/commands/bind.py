"""`shardq bind`: send messages of matching topics to a queue."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.parsing import Commands, add_queue, add_router, command
from shardq.cli.shell import Shell

ABOUT = """A pattern is words joined by dots: * stands for exactly one word, # for zero or more. Quote it, because * and
# mean something else to the shell. Binding the same pattern to the same queue again changes nothing."""


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq bind 'orders.*.created' billing\n  shardq bind 'orders.#' audit"
    parser = command(
        commands, "bind", run, "send messages of matching topics to a queue", about=ABOUT, examples=examples
    )
    parser.add_argument("pattern", metavar="PATTERN", help="which topics go to the queue")
    add_queue(parser)
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Bind the pattern to the queue."""
    new = shell.client.bind(args.pattern, args.queue, router=args.router)
    text = "bound" if new else "was bound already"
    shell.show(text, {"pattern": args.pattern, "queue": args.queue, "router": args.router, "changed": new})
    return OK
