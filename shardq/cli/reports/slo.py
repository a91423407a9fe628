"""`shardq report slo`: did jobs begin in time."""

from __future__ import annotations

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, command, flag, takes
from shardq.cli.reports.making import add_report, tell
from shardq.cli.shell import Shell

ABOUT = """An objective, such as that 99 % of jobs begin within 5 seconds of when they could. Time in which a
tenant's own pause, rate or cap blocked a job is not counted. A job that has waited too long is late, also while it
still waits. A burn rate of 1 uses up the error budget exactly; above 1 the objective is missed if that continues."""

EXAMPLES = """  shardq report slo mails.jobs
  shardq report slo mails.jobs --objective 99.9 --within 30s --since 28d"""


@command(ABOUT, EXAMPLES, extra="reports")
@takes(add_report)
@flag("objective", " (99)", default=99.0)
@flag("within", " (5s)", default=5.0)
def run(args: Args, shell: Shell) -> None:
    """Tell whether the objective was met."""
    from shardq.reports.options import Options

    if args.objective >= 100:
        raise UsageError("--objective must be below 100: an objective of all jobs has no error budget")
    tell("slo", args, shell, Options(objective=args.objective / 100, within=args.within))
