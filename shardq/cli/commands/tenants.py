"""`shardq tenants`: who has most in a queue."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.cli.output import say
from shardq.cli.parsing import Args, Parser, add_queue, argument, command, number, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.tenants import COLUMNS, FOLDED, RIGHT, USES, fields_of, row_of, uses_of
from shardq.cli.text import json_line
from shardq.model import Tenant
from shardq.ops.inspect.tenants import BOUNDS, MOST, ORDERS

ABOUT = """Shows for each shard key (or parent) its backlog; of this, what is held back until its turn comes, and what a
limit or a pause blocks; what is in flight; by how much work it is ahead of those whose turn is next; what is delayed;
and for how long the first of its messages has waited. In the orders dedup, dead and results: what it uses of the bounds
that all tenants share."""

EXAMPLES = """  shardq tenants jobs
  shardq tenants jobs --order oldest --limit 5
  shardq tenants jobs --order dead
  shardq tenants jobs --json | jq '.tenants[].shard_key'"""


def add_order(parser: Parser) -> None:
    """Add the options for who comes first, and how many are shown."""
    parser.add_argument(
        "--order",
        choices=ORDERS,
        metavar="WHAT",
        default="backlog",
        help=f"who comes first: {', '.join(ORDERS)} (backlog)",
    )
    parser.add_argument(
        "-n", "--limit", type=number(1), default=20, metavar="N", help=f"show so many, at most {MOST:,} (20)"
    )


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_order)
@argument("--start", type=number(0), default=0, metavar="N", help="leave out the first N (0)")
def run(args: Args, shell: Shell) -> None:
    """Print them."""
    queue, _ = shell.existing(args.queue)
    found = queue.tenants(args.order, limit=args.limit, start=args.start)
    show(shell, args.queue, found, of_uses=args.order in BOUNDS)


def show(shell: Shell, name: str, found: Sequence[Tenant], *, of_uses: bool = False) -> None:
    """Print a table of tenants: of what waits, or *of_uses* of bounds."""
    if shell.json:
        say(json_line({"queue": name, "tenants": [fields_of(each) for each in found]}))
    elif found and of_uses:
        draw(USES, [uses_of(each) for each in found], right=RIGHT, folded=FOLDED)
    elif of_uses:
        say("nobody uses any of it")
    elif found:
        draw(COLUMNS, [row_of(each) for each in found], right=RIGHT, folded=FOLDED)
    else:
        say("nobody has anything waiting")
