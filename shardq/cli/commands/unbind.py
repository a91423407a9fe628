"""`shardq unbind`: remove bindings."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK, Nothing
from shardq.cli.parsing import Commands, add_queue, add_router, command
from shardq.cli.shell import Shell

ABOUT = """A binding is removed only if its pattern is the same text as PATTERN; other bindings of the queue stay. Exit
code 3 when a pattern was not bound: stderr names it, and the other patterns are unbound nevertheless."""

EXAMPLES = """  shardq unbind 'orders.*.created' billing
  shardq unbind 'orders.#' 'invoices.#' audit"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "unbind", run, "remove bindings of a queue", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("patterns", metavar="PATTERN", nargs="+", help="the pattern as it was bound")
    add_queue(parser)
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Unbind the patterns."""
    patterns = list(dict.fromkeys(args.patterns))
    unknown = {
        each.pattern for each in shell.client.unbind_many([(p, args.queue) for p in patterns], router=args.router)
    }
    for pattern in patterns:
        if pattern not in unknown:
            value = {"pattern": pattern, "queue": args.queue, "router": args.router, "changed": True}
            shell.show("unbound" if len(patterns) == 1 else f"unbound {pattern}", value)
    if unknown:
        listed = ", ".join(repr(pattern) for pattern in patterns if pattern in unknown)
        raise Nothing(f"router {args.router!r} has no binding of {listed} to {args.queue!r}")
    return OK
