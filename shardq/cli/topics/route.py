"""`shardq topics route`: print which queues a topic goes to."""

from __future__ import annotations

from shardq.cli.exits import EXIT_NOTHING, OK
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.text import json_line
from shardq.cli.topics.list import looked_up
from shardq.routing import Binding

ABOUT = """Prints the names of the queues that `publish` would write to; those that are gone are named on stderr. Writes
nothing. Exit code 3 if there is none."""


@command(ABOUT, "  shardq topics route orders.eu.created")
@argument("topic", metavar="TOPIC", help="words joined by dots")
@flag("router")
def run(args: Args, shell: Shell) -> int:
    """Match the topic with the router's patterns."""
    matched = sorted(shell.client.router(args.router).match(args.topic))
    found = looked_up(shell, [Binding(args.topic, queue) for queue in matched])
    queues, gone = ([each.queue for each in found if bool(each.gone) is wanted] for wanted in (False, True))
    if shell.json:
        say(json_line({"topic": args.topic, "queues": queues, "gone": gone}))
    elif queues:
        say("\n".join(queues))
    if gone and not shell.json:
        remark(f"gone, so publish passes over it: {', '.join(gone)}")
    elif not matched and not shell.json:
        remark(f"no pattern matches {args.topic!r}")
    return OK if queues else EXIT_NOTHING
