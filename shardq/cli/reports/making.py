"""The common parts of all reports of `shardq report`: their arguments, and how one is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.flags import add_flag
from shardq.cli.grid import Column, grid
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, Parser
from shardq.cli.shell import Shell
from shardq.cli.text import json_line, printable
from shardq.cli.width import wrapped
from shardq.files import write_whole

if TYPE_CHECKING:
    from shardq.reports.catalog import MadeReport
    from shardq.reports.options import Options
    from shardq.reports.told import Table

MIN_NAME_COLUMNS = 8
"""Columns of a terminal that a name has at least."""


def add_report(parser: Parser) -> None:
    """Add what reports take."""
    add_last(parser)
    add_flag(parser, "since")


def add_last(parser: Parser) -> None:
    """Add what a report takes that is of a length of its own."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of tables that shardq jobs made")
    for name in ("before", "html"):
        add_flag(parser, name)
    add_flag(parser, "limit", " rows of a table (20)", default=20)


def tell(name: str, args: Args, shell: Shell, options: Options) -> None:
    """Make a report, print it, and write its page."""
    from shardq.reports.catalog import made
    from shardq.reports.errors import NoTables

    since = getattr(args, "since", None)
    if since is not None and args.before is not None and args.before <= since:
        raise UsageError("--before must be later than --since")
    try:
        found = made(name, args.folder, since=since, until=args.before, options=options._replace(rows=args.limit))
    except NoTables as error:
        raise NothingThere(str(error)) from None
    if shell.json:
        say(json_line(_fields(name, found)))
    else:
        _print(found)
    if args.html is not None:
        write_whole(args.html, found.html)
        remark(f"the page is {args.html}")


def _print(found: MadeReport) -> None:
    """The verdict first, then what stands behind it."""
    told = found.told
    for text in (told.verdict, *told.remarks):
        say("\n".join(wrapped(printable(text))))
    say(found.time)
    for table in told.tables:
        if table.rows:
            say(f"\n{table.title}")
            say("\n".join(grid(_columns(table), [[printable(cell) for cell in row] for row in table.rows])))


def _columns(table: Table) -> list[Column]:
    return [Column(name, MIN_NAME_COLUMNS if at < table.names else 0) for at, name in enumerate(table.columns)]


def _fields(name: str, found: MadeReport) -> dict[str, object]:
    told = found.told
    return {
        "report": name, "verdict": told.verdict, "is_bad": told.is_bad, "remarks": list(told.remarks),
        "since": found.span.since, "until": found.span.until, "rows": [*told.rows],
    }  # fmt: skip
