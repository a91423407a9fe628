"""`shardq pipeline fairness`: report how fair a queue was, from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.cli.exits import UsageError
from shardq.cli.output import say
from shardq.cli.parsing import Args, argument, flag
from shardq.cli.pipelines.stage import connecting, pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.values import number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardq.spark.pipelines.fairness.findings import Findings
    from shardq.spark.pipelines.fairness.pipeline import Request
    from shardq.spark.pipelines.report import Progress

ABOUT = """Reads journal events from EVENTS, which is an archive or another table with the journal's columns. Without
EVENTS it reads the journal that the queue has now (shardq configure QUEUE journal=1000000). Reports, for each window of
time and each shard key, how many messages came and how many were delivered, the fair share, the pick-up delays and
Jain's index of fairness, which shard keys were noisy, and which share streams with noisy ones. --out names a folder for
the tables as Parquet, a picture, and an HTML page that needs no other file.

--follow reads the queue's journal as a stream and keeps that folder up to date. Each run, or with --every each S
seconds, adds the windows that have ended. An event that comes more than --late seconds too late is dropped and
counted."""

EXAMPLES = """  shardq pipeline fairness archive/journal --out report/
  shardq pipeline fairness --queue jobs --window 10
  shardq pipeline fairness --queue jobs --follow --every 60 --out report/
  shardq pipeline fairness events.parquet --streams 64 --per-shard 4 --json"""

COLUMNS = ("shard key", "arrived", "served", "share", "excess", "owed", "noisy", "p50 ms", "p95 ms", "p99 ms")
TYPED = ("number", "time", "stream", "count", "due")
"""The columns of events that are no text, also in CSV."""


@pipeline(ABOUT, EXAMPLES)
@argument("events", nargs="?", metavar="EVENTS", help="a table of events (the queue's own journal)")
@argument("--format", metavar="F", help="of EVENTS: parquet, json, csv, orc, table (by its name)")
@flag("queue", "; only its events")
@argument("--window", type=number(1), metavar="S", default=60, help="length of a window in seconds (60)")
@flag("streams", " of the queue")
@flag("per_shard", " (as seen in the events)")
@argument("--out", metavar="DIR", help="write tables, pictures and pages there: a path or a URL")
@flag("follow", "; it is added to --out")
@flag("every", ", with --follow")
@argument(
    "--late",
    type=number(0),
    metavar="S",
    default=60,
    help="with --follow: seconds that a window waits for late events (60)",
)
def run(args: Args, shell: Shell) -> None:
    """Compute the report, print it, write pictures and pages."""
    if (args.streams is None) != (args.per_shard is None):
        raise UsageError("--streams needs --per-shard, and --per-shard needs --streams")
    if args.events is None and args.queue is None:
        raise UsageError("name a table of events, or with --queue a queue whose journal to read")
    if args.follow and (args.events is not None or args.queue is None or args.out is None):
        raise UsageError("--follow needs --queue and --out, and reads the queue's own journal")
    if args.out == "":
        raise UsageError("--out must name a folder")
    if args.every is not None and not args.follow:
        raise UsageError("--every needs --follow")
    dealt = _streams_and_width(args, shell)
    with started("fairness", args, shell) as (spark, progress):
        from shardq.spark.pipelines.fairness.pipeline import Request

        request = Request(args.window, dealt, args.queue, args.out)
        if args.follow:
            _follow(args, shell, spark, progress, request)
        else:
            _report(args, shell, spark, progress, request)


def _report(args: Args, shell: Shell, spark: SparkSession, progress: Progress, request: Request) -> None:
    """Report on the events that there are now."""
    from shardq.spark.pipelines.archive import archived
    from shardq.spark.pipelines.fairness.pipeline import run as judge
    from shardq.spark.pipelines.inputs import read_journal, read_table

    with progress.step(f"looking at {args.events or args.queue}"):
        if args.events is None:
            events = read_journal(spark, queue=args.queue, **connecting(args, shell))
        else:
            kept = archived(spark, args.events) if args.format is None else None
            events = read_table(spark, args.events, form=args.format, typed=TYPED) if kept is None else kept
    findings = judge(events, request, progress)
    if not shell.json:
        for each in findings:
            _table(each)


def _follow(args: Args, shell: Shell, spark: SparkSession, progress: Progress, request: Request) -> None:
    """Report on new events; with --every also on later ones."""
    from shardq.spark.pipelines.fairness.follow import follow
    from shardq.spark.pipelines.inputs import follow_journal

    events = follow_journal(spark, queue=args.queue, **connecting(args, shell))
    with progress.step(f"following {args.queue}"):
        late = follow(events, request, progress, lateness=args.late, every=args.every)
    progress.report.remarks.append(f"{late:,} tallies came too late")


def _streams_and_width(args: Args, shell: Shell) -> tuple[int, int] | None:
    """The numbers of streams and of streams per shard: as given, else the queue's if its journal is read, else None."""
    if args.streams is not None:
        from shardq.sharding import check_width

        check_width(args.streams, args.per_shard)
        return args.streams, args.per_shard
    if args.events is None:
        queue, _ = shell.existing(args.queue)
        config = queue.settings()
        return config.streams, config.streams_per_shard
    return None


def _table(found: Findings) -> None:
    """Print the shard keys that got the most deliveries."""
    from shardq.spark.pipelines.fairness.findings import share_text, shown_text

    rows = [
        (
            shown_text(each["shard_key"]), f"{each['arrived']:,}", f"{each['picked']:,}", share_text(each["share"]),
            *(f"{each[name]:,.0f}" for name in ("excess", "owed")), str(each["noisy"]),
            *("-" if each[name] is None else f"{each[name]:,.0f}" for name in ("p50", "p95", "p99")),
        )
        for each in found.top[:10]
    ]  # fmt: skip
    draw(COLUMNS, rows, right=frozenset(COLUMNS[1:]))
    say()
