"""`shardq report noisy`: tenants that are noisier than usual."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, argument, command, takes
from shardq.cli.reports.making import add_last, tell
from shardq.cli.shell import Shell
from shardq.cli.values import number

ABOUT = """The work that each tenant brought in the last 24 hours before the end, beside its own days in the weeks
before. More work from all tenants together counts for nobody, and neither does how long jobs wait. So in an
overload none is noisy but the tenants that brought it. A tenant that came in the last week is new, not noisy."""

EXAMPLES = """  shardq report noisy mails.jobs
  shardq report noisy mails.jobs --before 2026-11-27 --weeks 8"""


@command(ABOUT, EXAMPLES, extra="reports")
@takes(add_last)
@argument("--weeks", type=number(1), default=4, metavar="N", help="how many weeks before are usual, at most 52 (4)")
def run(args: Args, shell: Shell) -> None:
    """Tell who is noisier than usual."""
    from shardq.reports.options import Options

    if args.weeks > 52:
        raise UsageError("--weeks is at most 52")
    tell("noisy", args, shell, Options(weeks=args.weeks))
