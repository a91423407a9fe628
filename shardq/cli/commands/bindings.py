"""`shardq bindings`: list what is bound to what."""

from __future__ import annotations

import argparse

from shardq.cli.exits import NOTHING, OK
from shardq.cli.parsing import Commands, add_router, command
from shardq.cli.shell import Shell, remark
from shardq.cli.table import draw
from shardq.cli.text import json_line, plural
from shardq.routing import Binding, Router

ABOUT = "Which bindings would a pattern catch? Exit code 3 when there are none."

EXAMPLES = """  shardq bindings
  shardq bindings --queue audit --json
  shardq bindings --overlapping 'orders.eu.#'"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "bindings", run, "list the bindings of topics to queues", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("--queue", metavar="QUEUE", help="only those of this queue")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--overlapping", metavar="PATTERN", help="only those that get a topic that PATTERN matches")
    which.add_argument(
        "--covered-by", metavar="PATTERN", help="only those that get no topic that PATTERN does not match"
    )
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """List them, sorted by pattern."""
    router = shell.client.router(args.router)
    found = [each for each in asked_for(router, args) if args.queue in (None, each.queue)]
    if shell.json:
        for pattern, queue in found:
            print(json_line({"pattern": pattern, "queue": queue}))
    elif found:
        draw(("pattern", "queue"), found)
        remark(f"{plural(len(found), 'binding')}, version {shell.client.router_state(args.router).version:,}")
    else:
        remark(f"router {args.router!r} has none" + (" of these" if len(router) else ""))
    if ignored := shell.client.router_state(args.router).ignored:
        remark(f"{ignored:,} more that are no bindings were ignored: something else or an older version wrote them")
    return OK if found else NOTHING


def asked_for(router: Router, args: argparse.Namespace) -> list[Binding]:
    """The bindings, those of a pattern if one was named, sorted."""
    if args.overlapping is not None:
        return router.overlapping(args.overlapping)
    if args.covered_by is not None:
        return router.covered_by(args.covered_by)
    return sorted(router.bindings())
