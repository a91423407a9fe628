"""`shardq report used`: who used what."""

from __future__ import annotations

from shardq.cli.parsing import Args, command, takes
from shardq.cli.reports.making import add_report, tell
from shardq.cli.shell import Shell

ABOUT = """The jobs that ended in this time, by tenant, task and plan: for how long handlers worked on them, how
often they were delivered, and how often that failed. Time is that of the handlers' own clocks; where nobody told it,
as where a worker died, for how long the job was in flight."""

EXAMPLES = """  shardq report used mails.jobs
  shardq report used mails.jobs --since 2026-11-01 --before 2026-12-01 --json"""


@command(ABOUT, EXAMPLES, extra="reports")
@takes(add_report)
def run(args: Args, shell: Shell) -> None:
    """Tell who used what."""
    from shardq.reports.options import Options

    tell("used", args, shell, Options())
