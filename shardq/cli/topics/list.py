"""`shardq topics list`: list which patterns are bound to which queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.cli.exits import EXIT_NOTHING, OK
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, Parser, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import json_line, plural
from shardq.ops.topics.gone import look_up
from shardq.routing import Binding, BoundQueue, Router

ABOUT = """Without options it lists all bindings, and whether their queues are there: publish passes over one that is
gone (deleted, or not declared yet). A queue that this user may not read is shown as unreadable. --overlapping and
--covered-by say which bindings a pattern would affect. Exit code 3 when no binding fits."""

FOLDED_WIDTHS: Final = {"pattern": 20, "queue": 12}
STATES: Final = {True: "gone", False: "there", None: "unreadable"}
EXAMPLES = """  shardq topics list
  shardq topics list --queue audit --json
  shardq topics list --gone
  shardq topics list --overlapping 'orders.eu.#'"""


def _add_which(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--overlapping", metavar="PATTERN", help="only those that match a topic that it matches")
    which.add_argument("--covered-by", metavar="PATTERN", help="only bindings whose every topic PATTERN matches, too")


@command(ABOUT, EXAMPLES)
@flag("queue", "; only bindings of it")
@flag("gone")
@takes(_add_which)
@flag("router")
def run(args: Args, shell: Shell) -> int:
    """Print the bindings, sorted by pattern."""
    router = shell.client.router(args.router)
    fitting = [each for each in selected(router, args) if args.queue in (None, each.queue)]
    found = [each for each in looked_up(shell, fitting) if each.gone or not args.gone]
    if shell.json:
        for each in found:
            say(json_line(each._asdict()))
    elif found:
        draw(("pattern", "queue", "which is"), [(*each[:2], STATES[each.gone]) for each in found], folded=FOLDED_WIDTHS)
        remark(f"{plural(len(found), 'binding')}, version {shell.client.router_state(args.router).version:,}")
    else:
        remark(f"router {args.router!r} has no " + ("such bindings" if len(router) else "bindings"))
    if ignored := shell.client.router_state(args.router).ignored:
        remark(f"{ignored:,} invalid entries were ignored: another program or an older version of shardq wrote them")
    return OK if found else EXIT_NOTHING


def looked_up(shell: Shell, bindings: Sequence[Binding]) -> list[BoundQueue]:
    """The *bindings*, each with whether its queue is gone."""
    clock = shell.client.clock
    return shell.client.run(look_up(bindings, clock.monotonic() + shell.timeout, clock))


def selected(router: Router, args: Args) -> list[Binding]:
    """All bindings, or those that --overlapping or --covered-by selects; sorted."""
    if args.overlapping is not None:
        return router.overlapping(args.overlapping)
    if args.covered_by is not None:
        return router.covered_by(args.covered_by)
    return sorted(router.bindings())
