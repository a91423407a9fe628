"""`shardq edge resend`: let messages that were refused wait in the spool again."""

from __future__ import annotations

from contextlib import closing

from shardq.cli.edge.options import add_spool, open_spool, read_ids
from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.parsing import Args, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.text import plural

ABOUT = """They keep their ids, so none is stored twice. The process that delivers the spool sends them. Messages that
are damaged, or were dropped for newer ones, cannot be sent."""

EXAMPLES = """  shardq edge resend --reason NO_QUEUE --spool app.db
  shardq edge resend --all --spool app.db"""


@command(ABOUT, EXAMPLES, extra="edge")
@takes(add_spool)
@argument("ids", metavar="ID", nargs="*", help="the messages' ids, as `shardq edge refused` prints them")
@flag("reason", " for which they were refused")
@flag("all", " that are kept")
def run(args: Args, shell: Shell) -> None:
    """Move them back, and print how many there were."""
    if sum((bool(args.ids), args.reason is not None, args.all)) != 1:
        raise UsageError("give ids, or --reason, or --all")
    with closing(open_spool(args)) as spool:
        count = spool.refusals.resend(read_ids(args.ids) if args.ids else None, args.reason)
    if not count:
        raise NothingThere("no refused message can be sent again")
    shell.show(f"{plural(count, 'message')} in the spool again", {"resent": count})
