"""`shardq bindings`: list which patterns are bound to which queues."""

from __future__ import annotations

import argparse

from shardq.cli.exits import NOTHING, OK
from shardq.cli.output import remark, say
from shardq.cli.parsing import Commands, add_router, command
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import json_line, plural
from shardq.routing import Binding, Router

ABOUT = """Without options it lists all bindings. --overlapping and --covered-by say which bindings a pattern would
affect. Exit code 3 when no binding fits."""

EXAMPLES = """  shardq bindings
  shardq bindings --queue audit --json
  shardq bindings --overlapping 'orders.eu.#'"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "bindings", run, "list the bindings of topics to queues", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("--queue", metavar="QUEUE", help="only bindings of this queue")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--overlapping", metavar="PATTERN", help="only bindings that match a topic that PATTERN matches")
    which.add_argument("--covered-by", metavar="PATTERN", help="only bindings whose every topic PATTERN matches, too")
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Print the bindings, sorted by pattern."""
    router = shell.client.router(args.router)
    found = [each for each in selected(router, args) if args.queue in (None, each.queue)]
    if shell.json:
        for pattern, queue in found:
            say(json_line({"pattern": pattern, "queue": queue}))
    elif found:
        draw(("pattern", "queue"), found)
        remark(f"{plural(len(found), 'binding')}, version {shell.client.router_state(args.router).version:,}")
    else:
        remark(f"router {args.router!r} has no " + ("such bindings" if len(router) else "bindings"))
    if ignored := shell.client.router_state(args.router).ignored:
        remark(f"{ignored:,} invalid entries were ignored: another program or an older version of shardq wrote them")
    return OK if found else NOTHING


def selected(router: Router, args: argparse.Namespace) -> list[Binding]:
    """All bindings, or those that --overlapping or --covered-by selects; sorted."""
    if args.overlapping is not None:
        return router.overlapping(args.overlapping)
    if args.covered_by is not None:
        return router.covered_by(args.covered_by)
    return sorted(router.bindings())
