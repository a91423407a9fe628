"""`shardq pipeline archive`: store journals and dead letters as Parquet."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from shardq.cli.exits import EXIT_PARTLY, OK, NothingThere, UsageError
from shardq.cli.output import remark
from shardq.cli.parsing import Args, argument, flag
from shardq.cli.pipelines.stage import connecting, pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.values import number
from shardq.errors import QueueMissing
from shardq.ops.queue.listing import matching_queues

ABOUT = """Adds the journal events and the dead letters that are new since the last run to DIR/journal and DIR/dead, as
Parquet files by queue and day. Each is stored once, also if a run was killed. A journal keeps only its newest events,
so run this often enough, or with --every. If events were lost before they were archived, the run fails, unless
--allow-loss is given.

A queue that is not there, or keeps no journal, is named on stderr; the others are archived, and the exit code is 5.
The events of a deleted queue are no loss. If it was recreated, it is archived from its beginning on. --pattern archives
all queues whose whole names match a regular expression, with --every also those that come later; it looks once a
minute.

The checkpoint in DIR/_checkpoints knows what is archived. If it is gone or does not fit, the run is refused. With
--adopt it reads from the archive how far each queue is there, and continues behind that.

--compact merges the files of earlier runs into one for each queue and day; no other run may archive meanwhile."""

EXAMPLES = """  shardq pipeline archive archive/ jobs mails
  shardq pipeline archive archive/ jobs --every 60 --only journal
  shardq pipeline archive archive/ --pattern 'jobs-.*'
  shardq pipeline archive archive/ --compact"""


def expression(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"must be a regular expression: {error}") from None
    return text


@pipeline(ABOUT, EXAMPLES)
@argument("dir", metavar="DIR", help="the folder of the archive")
@argument("queues", nargs="*", metavar="QUEUE", help="the queues; others than before may be named, and come back later")
@argument("--pattern", type=expression, default="", metavar="REGEX", help="instead: queues whose whole names match")
@argument("--only", choices=("journal", "dead"), help="archive only this table")
@flag("every", ", until Ctrl-C (needs --only)")
@argument("--most", type=number(1), metavar="N", default=1_000_000, help="rows of a batch at most (1,000,000)")
@argument("--allow-loss", action="store_true", help="do not fail if events were lost")
@argument("--adopt", action="store_true", help="if the checkpoint is gone, continue behind the archived events")
@argument("--compact", action="store_true", help="then merge the files of earlier runs")
def run(args: Args, shell: Shell) -> int:
    """Archive, then compact."""
    is_named = bool(args.queues or args.pattern)
    if args.queues and args.pattern:
        raise UsageError("name the queues to archive, or give a --pattern, not both")
    if not is_named and not args.compact:
        raise UsageError("name the queues to archive, or use --pattern or --compact")
    if args.every is not None and not args.only:
        raise UsageError("--every follows one table: use --only journal or --only dead")
    if args.adopt and not is_named:
        raise UsageError("--adopt needs the queues to archive")
    tables = [args.only] if args.only else ["journal", "dead"]
    wanted = _found(args, shell, tables) if is_named else FoundArchive({table: [] for table in tables}, {})
    for why in wanted.missing.values():
        remark(why)
    options = {
        **connecting(args, shell),
        "maxOffsetsPerTrigger": str(args.most), "failOnDataLoss": str(not args.allow_loss).lower(),
        "markDataLoss": "true",
    }  # fmt: skip
    with started("archive", args, shell) as (spark, progress):
        from shardq.spark.pipelines.archive import Archive

        archive = Archive(spark, args.dir)
        how = {"every": args.every, "adopt": args.adopt, "pattern": args.pattern}
        for name, queues in wanted.queues.items():
            if queues:
                with progress.step(f"archiving {name}"):
                    count = archive.follow(name, queues, options, progress, **how)
                progress.report.figures[f"{name} rows"] = count
            if args.compact:
                with progress.step(f"compacting {name}"):
                    progress.report.figures[f"{name} folders merged"] = archive.compact(name)
        remark(f"shardq.spark.pipelines.archive.Archive(spark, {args.dir!r}).table('journal') reads what was archived")
        if wanted.missing:
            progress.report.figures["queues not archived"] = len(wanted.missing)
    return EXIT_PARTLY if wanted.missing else OK


class FoundArchive(NamedTuple):
    """The queues to archive of each table, and what is not archived, by queue."""

    queues: dict[str, list[str]]
    missing: dict[str, str]


def _found(args: Args, shell: Shell, tables: list[str]) -> FoundArchive:
    """Look for the queues that are named, or that match. Raises Nothing if none has what is to be archived."""
    found = FoundArchive({table: [] for table in tables}, {})
    names = dict.fromkeys(args.queues) if args.queues else _matching(args.pattern, shell)
    for name in names:
        try:
            has_journal = bool(shell.queue(name).settings().journal)
        except QueueMissing:
            found.missing[name] = f"queue {name!r} is not archived: there is no such queue"
            continue
        for table in tables:
            if table != "journal" or has_journal:
                found.queues[table].append(name)
            else:
                found.missing[name] = (
                    f"queue {name!r} keeps no journal to archive; shardq configure {name} journal=1000000 begins one"
                )
    if args.pattern:
        found.missing.clear()  # nobody named them
    if not any(found.queues.values()):
        raise NothingThere("; ".join(found.missing.values()) or f"no queue to archive matches {args.pattern!r}")
    return found


def _matching(pattern: str, shell: Shell) -> list[str]:
    """The queues whose whole names match, found as format("shardq") finds them for the option subscribePattern."""
    return shell.client.run(matching_queues(pattern, shell.client.clock))
