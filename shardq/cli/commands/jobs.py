"""`shardq jobs`: write a table with a row for each job that ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardq.cli.exits import EXIT_PARTLY, OK, UsageError
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import json_line
from shardq.errors import BackendError

if TYPE_CHECKING:
    import pyarrow as pa

ABOUT = """Makes a row of each message that ended: when it was written, ready, delivered and done, how often it was
tried, for how long it waited, was blocked, in flight and at work. It reads the journals of the queues, which need the
setting `journal`, or with --archive what `shardq pipeline archive` has stored, of all queues there if none is named.

--out names a folder, to which each run adds what ended since the one before; or a file NAME.parquet, which holds all
that the journals have now. Beside the jobs lie what people set, the workers, the jobs that have not ended, and where
events were lost. docs/jobs.md has the columns. A run that was killed is repeated by the next one: no row is there
twice."""

EXAMPLES = """  shardq jobs mails --out day.parquet
  shardq jobs mails reports --out jobs/
  shardq jobs --archive archive/ --out jobs/"""


@command(ABOUT, EXAMPLES, extra="jobs")
@argument("queues", nargs="*", metavar="QUEUE", help="the queues")
@argument("--out", required=True, type=Path, metavar="PATH", help="a folder, or a file NAME.parquet")
@flag("archive")
def run(args: Args, shell: Shell) -> int:
    """Make the jobs, and say how many there are."""
    if not args.queues and args.archive is None:
        raise UsageError("name the queues, or with --archive an archive")
    from shardq.jobs.making import SUFFIX, Archived, JobsSource, LiveQueue, make, make_file, settings_if_there

    names = [*dict.fromkeys(args.queues)]
    journals = LiveQueue(shell.client, names)
    source: JobsSource = journals if args.archive is None else Archived(Path(args.archive), names)
    is_silent = False

    def seen(name: str, queue_id: str, events: pa.Table) -> pa.Table | None:
        nonlocal is_silent
        try:
            return None if is_silent else settings_if_there(shell.client, name, queue_id, events)
        except BackendError:
            if args.archive is None:
                raise
            is_silent = True
            remark("no server was asked how the queues are set, so the table knows only what the archive tells of that")
            return None

    made = (make_file if args.out.suffix == SUFFIX else make)(source, args.out, seen)
    if made.lost:
        remark(f"{made.lost:,} events are missing: rows that may lack some are not `whole`, and {args.out} says when")
    if shell.json:
        say(json_line(made._asdict()))
    else:
        say(facts([(name, f"{count:,}") for name, count in made._asdict().items()]))
    for why in journals.queues.missing.values():
        remark(why)
    return EXIT_PARTLY if journals.queues.missing else OK
