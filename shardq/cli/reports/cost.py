"""`shardq report cost`: what it cost."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, argument, command, takes
from shardq.cli.reports.making import add_report, tell
from shardq.cli.shell import Shell
from shardq.cli.values import positive

ABOUT = """The price of a slot of a worker for one second, times the time of handlers, by day, tenant and task. Time
that workers offered and nobody used is a cost of its own. With --json the rows have the column names of FOCUS, the open
standard of bills, so that tools that know it read them."""

EXAMPLES = """  shardq report cost mails.jobs --price 0.000012
  shardq report cost mails.jobs --since 2026-11-01 --before 2026-12-01 --json"""


@command(ABOUT, EXAMPLES, extra="reports")
@takes(add_report)
@argument("--price", type=positive, default=0.00001, metavar="N", help="price of a slot for a second (0.00001)")
@argument("--currency", default="USD", metavar="CODE", help="its currency, three letters (USD)")
def run(args: Args, shell: Shell) -> None:
    """Tell what it cost."""
    from shardq.reports.options import Options

    if len(args.currency) != 3 or not args.currency.isascii() or not args.currency.isalpha():
        raise UsageError("--currency must be a code of three letters, such as EUR")
    tell("cost", args, shell, Options(price=args.price, currency=args.currency.upper()))
