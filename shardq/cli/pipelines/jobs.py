"""`shardq pipeline jobs`: make the table of jobs with many tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shardq.cli.exits import EXIT_PARTLY, OK, UsageError
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, flag
from shardq.cli.pipelines.stage import connecting, pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.values import number
from shardq.errors import BackendError

if TYPE_CHECKING:
    import pyarrow as pa

ABOUT = """As `shardq jobs`, which makes the same folder on one core: a row of each message that ended. Spark spreads it
over many, and knows other file systems: DIR is a path or a URL. Each run adds what ended since the one before, also
one of `shardq jobs`, or with --every the runs follow each other. A run that was killed is repeated by the next one; no
row is there twice. No two runs may add to one folder at the same time.

With --archive it reads what `shardq pipeline archive` has stored, of all queues there if none is named."""

EXAMPLES = """  shardq pipeline jobs jobs/ mails reports
  shardq pipeline jobs jobs/ mails --every 60
  shardq pipeline jobs jobs/ --archive archive/"""


@pipeline(ABOUT, EXAMPLES)
@argument("dir", metavar="DIR", help="the folder of the tables")
@argument("queues", nargs="*", metavar="QUEUE", help="the queues")
@flag("archive")
@flag("every", ", until Ctrl-C")
@argument("--most", type=number(1), metavar="N", default=10_000_000, help="events of a run, about (10,000,000)")
def run(args: Args, shell: Shell) -> int:
    """Make the jobs; with --every continue."""
    if not args.queues and args.archive is None:
        raise UsageError("name the queues, or with --archive an archive")
    if args.archive is not None and args.every is not None:
        raise UsageError("--every follows journals, not an --archive")
    names = [*dict.fromkeys(args.queues)]
    with started("jobs", args, shell) as (spark, progress):
        from shardq.jobs.gone import RunQueues
        from shardq.jobs.making import Totals, settings_if_there
        from shardq.spark.pipelines.jobs import JobsFolder, add, archived_batch, live_batches

        folder, options = JobsFolder(spark, args.dir), connecting(args, shell)
        queues = RunQueues(names)
        total = Totals()

        def seen(name: str, queue_id: str, events: pa.Table) -> pa.Table | None:
            try:
                return settings_if_there(shell.client, name, queue_id, events)
            except BackendError:
                if args.archive is None:
                    raise
                remark(f"no server was asked how queue {name!r} is set")
                return None

        while True:
            with progress.step("making jobs"):
                before = folder.newest()
                archived = args.archive is not None
                batches = (
                    [archived_batch(spark, args.archive, names, before)]
                    if archived
                    else live_batches(spark, options, queues, before, args.most)
                )
                for batch in batches:
                    made = add(folder, batch, seen)
                    total = Totals(
                        total.events + made.events, total.jobs + made.jobs, made.open, total.lost + made.lost
                    )
                    progress.report.figures.update(total._asdict())
            if args.every is None:
                break
            time.sleep(args.every)
    for why in queues.missing.values():
        remark(why)
    return EXIT_PARTLY if queues.missing else OK
