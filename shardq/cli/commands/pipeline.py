"""`shardq pipeline NAME`: run one of the data pipelines on Spark."""

from __future__ import annotations

from shardq.cli.exits import MEANING
from shardq.cli.parsing import Commands, Help
from shardq.cli.pipelines import ALL

ABOUT = """The pipelines need the extra "spark" (pip install 'shardq[spark]') and Java 17 or newer. They run on all
cores of this machine, on the cluster that --master names, or, under spark-submit, on the cluster of that. Progress goes
to stderr, a short report to stdout."""

EXAMPLES = """  shardq pipeline fairness archive/journal --out report/
  shardq pipeline fairness --queue jobs"""


def register(commands: Commands) -> None:
    """Add the parser and the parsers of the pipelines."""
    summary = "load, archive, judge and plan queues with Spark"
    parser = commands.add_parser(
        "pipeline",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{ABOUT}",
        epilog=f"examples:\n{EXAMPLES}\n\n{MEANING}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    names: Commands = parser.add_subparsers(title="pipelines", metavar="NAME", required=True)
    for module in ALL:
        module.register(names)
