"""`shardq report fair`: was it fair."""

from __future__ import annotations

from shardq.cli.parsing import Args, command, takes
from shardq.cli.reports.making import add_report, tell
from shardq.cli.shell import Shell

ABOUT = """Looks at all tenants (parents, in a queue with parents) while something of theirs was ready, and no pause,
rate or cap blocked it. Neither of two that both waited may be given more work than the other, by weight, but for a few
of their longest jobs, and what ran already when the other came. If one was, the first line says which tenant was
ahead, by how much, and when. Differences between tenants that did not wait at the same time are none of fairness."""

EXAMPLES = """  shardq report fair mails.jobs
  shardq report fair mails.jobs --since 2h --html fair.html"""


@command(ABOUT, EXAMPLES, extra="reports")
@takes(add_report)
def run(args: Args, shell: Shell) -> None:
    """Tell whether it was fair."""
    from shardq.reports.options import Options

    tell("fair", args, shell, Options())
