"""`shardq bindings`: list what is bound to what."""

from __future__ import annotations

import argparse

from shardq.cli.exits import NOTHING, OK
from shardq.cli.parsing import Commands, add_router, command
from shardq.cli.shell import Shell, remark
from shardq.cli.table import draw
from shardq.cli.text import json_line, plural


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq bindings\n  shardq bindings --queue audit --json"
    about = "Exit code 3 when there are none."
    parser = command(commands, "bindings", run, "list the bindings of topics to queues", about=about, examples=examples)
    parser.add_argument("--queue", metavar="QUEUE", help="only those of this queue")
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """List them, sorted by pattern."""
    router = shell.client.router(args.router)
    found = sorted(each for each in router.bindings() if args.queue in (None, each.queue))
    if shell.json:
        for pattern, queue in found:
            print(json_line({"pattern": pattern, "queue": queue}))
    elif found:
        draw(("pattern", "queue"), found)
        remark(f"{plural(len(found), 'binding')}, version {shell.client.router_state(args.router).version:,}")
    else:
        remark(f"router {args.router!r} has none")
    if ignored := shell.client.router_state(args.router).ignored:
        remark(f"{ignored:,} more that are no bindings were ignored: something else wrote to the router's hash")
    return OK if found else NOTHING
