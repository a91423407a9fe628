"""`shardq pipeline archive`: store journals and dead letters as Parquet."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.output import remark
from shardq.cli.parsing import Commands, number, time
from shardq.cli.pipelines.stage import connecting, pipeline, started
from shardq.cli.shell import Shell

ABOUT = """Adds the journal events and the dead letters that are new since the last run to DIR/journal and DIR/dead, as
Parquet files by queue and day. Each is stored once, also if a run was killed. A journal keeps only its newest events,
so run this often enough, or with --every. If events were lost before they were archived, the run fails, unless
--allow-loss is given.

The checkpoint in DIR/_checkpoints knows what is archived. If it is gone or does not fit, the run is refused. With
--adopt it reads from the archive how far each queue is there, and goes on behind that.

--compact merges the files of earlier runs into one for each queue and day; no other run may archive meanwhile."""

EXAMPLES = """  shardq pipeline archive archive/ jobs mails
  shardq pipeline archive archive/ jobs --every 60 --only journal
  shardq pipeline archive archive/ --compact"""


def register(names: Commands) -> None:
    """Add the parser."""
    parser = pipeline(
        names, "archive", run, "store journals and dead letters as Parquet", about=ABOUT, examples=EXAMPLES
    )
    parser.add_argument("dir", metavar="DIR", help="the folder of the archive")
    parser.add_argument(
        "queues", nargs="*", metavar="QUEUE", help="the queues; others than before may be named, and come back later"
    )
    parser.add_argument("--only", choices=("journal", "dead"), help="archive only this table")
    parser.add_argument("--every", type=time, metavar="S", help="repeat every S seconds until Ctrl-C (needs --only)")
    parser.add_argument(
        "--most", type=number(1), metavar="N", default=1_000_000, help="rows of a batch at most (1,000,000)"
    )
    parser.add_argument("--allow-loss", action="store_true", help="do not fail if events were lost")
    parser.add_argument("--adopt", action="store_true", help="if the checkpoint is gone, go on behind what is archived")
    parser.add_argument("--compact", action="store_true", help="then merge the files of earlier runs")


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Archive, then compact."""
    from shardq.cli.exits import UsageError

    if not args.queues and not args.compact:
        raise UsageError("name the queues to archive, or use --compact")
    if args.every is not None and not args.only:
        raise UsageError("--every follows one table: use --only journal or --only dead")
    if args.adopt and not args.queues:
        raise UsageError("--adopt needs the queues to archive")
    for name in args.queues:
        shell.existing(name)
    options = {
        **connecting(args, shell),
        "maxOffsetsPerTrigger": str(args.most), "failOnDataLoss": str(not args.allow_loss).lower(),
    }  # fmt: skip
    with started("archive", args, shell) as (spark, progress):
        from shardq.spark.pipelines.archive import TABLES, Archive

        archive = Archive(spark, args.dir)
        for name in [args.only] if args.only else list(TABLES):
            if args.queues:
                with progress.step(f"archiving {name}"):
                    count = archive.follow(name, args.queues, options, progress, every=args.every, adopt=args.adopt)
                progress.report.figures[f"{name} rows"] = count
            if args.compact:
                with progress.step(f"compacting {name}"):
                    progress.report.figures[f"{name} folders merged"] = archive.compact(name)
        remark(f"shardq.spark.pipelines.archive.Archive(spark, {args.dir!r}).table('journal') reads what was archived")
    return OK
