"""`shardq route`: print which queues a topic goes to."""

from __future__ import annotations

import argparse

from shardq.cli.exits import NOTHING, OK
from shardq.cli.output import remark, say
from shardq.cli.parsing import Commands, add_router, command
from shardq.cli.shell import Shell
from shardq.cli.text import json_line


def register(commands: Commands) -> None:
    """Add the parser."""
    examples = "  shardq route orders.eu.created"
    about = (
        "Prints the names of the queues that `publish` would write to. Writes nothing. Exit code 3 if there is none."
    )
    parser = command(commands, "route", run, "print which queues a topic goes to", about=about, examples=examples)
    parser.add_argument("topic", metavar="TOPIC", help="words joined by dots")
    add_router(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Match the topic with the router's patterns."""
    queues = sorted(shell.client.router(args.router).match(args.topic))
    if shell.json:
        say(json_line({"topic": args.topic, "queues": queues}))
    elif queues:
        say("\n".join(queues))
    else:
        remark(f"no pattern matches {args.topic!r}")
    return OK if queues else NOTHING
