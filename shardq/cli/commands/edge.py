"""`shardq edge NAME`: send messages over a gateway, and look into the spool in which they wait."""

from __future__ import annotations

from shardq.cli.edge import ALL
from shardq.cli.exits import MEANING
from shardq.cli.parsing import Commands, Help

ABOUT = """A producer without access to Redis puts its messages into a spool, a file on its disk, from which they go to
a gateway until Redis has stored them. The commands need the extra "edge" (pip install 'shardq[edge]')."""

EXAMPLES = """  shardq edge send metrics 'cpu 0.3' -k site-7 --spool app.db --gateway gw:8443
  shardq edge status --spool app.db"""


def register(commands: Commands) -> None:
    """Add the parser and the parsers of its commands."""
    summary = "send messages over a gateway, without access to Redis"
    parser = commands.add_parser(
        "edge",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{ABOUT}",
        epilog=f"examples:\n{EXAMPLES}\n\n{MEANING}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    names: Commands = parser.add_subparsers(title="commands", metavar="NAME", required=True)
    for module in ALL:
        module.register(names)
