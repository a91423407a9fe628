"""`shardq pipeline fairness`: how fair a queue was, from its journal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shardq.cli.exits import OK, UsageError
from shardq.cli.parsing import Commands, number, time
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.table import draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardq.spark.pipelines.fairness.findings import Findings
    from shardq.spark.pipelines.fairness.pipeline import Asked
    from shardq.spark.pipelines.report import Progress

ABOUT = """Reads journal events from EVENTS, an archive or other table with the journal's columns; without it the
journal that the queue has now (configure journal=1000000). Tells for each window and shard key the volume, its
fair share and what it got, pick-up delays, Jain's index, who was noisy and who shares streams with the noisy.

--out is a folder for the tables as Parquet, a picture and a page that needs nothing beside it.

--follow reads the queue's journal as a stream and keeps that folder true: each run, or with --every each so many
seconds, adds the windows that are over. What comes later than --late seconds for a window is dropped and counted."""

EXAMPLES = """  shardq pipeline fairness archive/journal --out report/
  shardq pipeline fairness --queue jobs --window 10
  shardq pipeline fairness --queue jobs --follow --every 60 --out report/
  shardq pipeline fairness events.parquet --streams 64 --per-shard 4 --json"""

COLUMNS = ("shard key", "arrived", "served", "share", "excess", "owed", "noisy", "p50 ms", "p95 ms", "p99 ms")


def register(names: Commands) -> None:
    """Add the parser."""
    parser = pipeline(names, "fairness", run, "judge how fair a queue was", about=ABOUT, examples=EXAMPLES)
    parser.add_argument(
        "events", nargs="?", metavar="EVENTS", help="where the events are; else the queue's own journal"
    )
    parser.add_argument("--format", metavar="F", help="of EVENTS: parquet, json, csv, orc, table (by its name)")
    parser.add_argument("--queue", metavar="QUEUE", help="this queue only")
    parser.add_argument("--window", type=number(1), metavar="S", default=60, help="seconds of a window (60)")
    parser.add_argument("--streams", type=number(1), metavar="N", help="the queue has so many streams")
    parser.add_argument("--per-shard", type=number(1), metavar="M", help="and so many per shard; else as seen")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write tables, pictures and pages there")
    parser.add_argument("--follow", action="store_true", help="as a stream: what is new since the last run into --out")
    parser.add_argument("--every", type=time, metavar="S", help="with --follow: go on, every S seconds, until Ctrl-C")
    parser.add_argument(
        "--late", type=number(0), metavar="S", default=60, help="with --follow: for how long a window stays open (60)"
    )


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Judge, print, draw."""
    if (args.streams is None) != (args.per_shard is None):
        raise UsageError("--streams and --per-shard go together")
    if args.events is None and args.queue is None:
        raise UsageError("say where the events are, or with --queue whose journal to read")
    if args.follow and (args.events is not None or args.queue is None or args.out is None):
        raise UsageError("--follow needs --queue and --out, and reads the queue's own journal")
    if args.every is not None and not args.follow:
        raise UsageError("--every goes with --follow")
    dealt = _dealt(args, shell)
    with started("fairness", args, shell) as (spark, progress):
        from shardq.spark.pipelines.fairness.pipeline import Asked

        asked = Asked(args.window, dealt, args.queue, args.out)
        if args.follow:
            _follow(args, shell, spark, progress, asked)
        else:
            _judge(args, shell, spark, progress, asked)
    return OK


def _judge(args: argparse.Namespace, shell: Shell, spark: SparkSession, progress: Progress, asked: Asked) -> None:
    """What there is, once."""
    from shardq.spark.pipelines.fairness.pipeline import run as judge
    from shardq.spark.pipelines.inputs import read_journal, read_table

    with progress.step(f"looking at {args.events or args.queue}"):
        if args.events is None:
            events = read_journal(spark, shell.url, args.queue)
        else:
            events = read_table(spark, args.events, form=args.format)
    told = judge(events, asked, progress)
    if not shell.json:
        for each in told:
            _table(each)


def _follow(args: argparse.Namespace, shell: Shell, spark: SparkSession, progress: Progress, asked: Asked) -> None:
    """What is new, and what will be."""
    from shardq.spark.pipelines.fairness.follow import follow
    from shardq.spark.pipelines.inputs import follow_journal

    events = follow_journal(spark, shell.url, args.queue)
    with progress.step(f"following {args.queue}"):
        late = follow(events, asked, progress, lateness=args.late, every=args.every)
    progress.report.remarks.append(f"{late:,} tallies came too late")


def _dealt(args: argparse.Namespace, shell: Shell) -> tuple[int, int] | None:
    """N and M: those given, those of the queue that is asked, else None."""
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
    """The shard keys that were served most."""
    from shardq.spark.pipelines.fairness.findings import shown_text

    rows = [
        (
            shown_text(each["shard_key"]), f"{each['arrived']:,}", f"{each['picked']:,}", f"{each['share']:.1%}",
            *(f"{each[name]:,.0f}" for name in ("excess", "owed")), str(each["noisy"]),
            *("-" if each[name] is None else f"{each[name]:,.0f}" for name in ("p50", "p95", "p99")),
        )
        for each in found.top[:10]
    ]  # fmt: skip
    draw(COLUMNS, rows, right=frozenset(COLUMNS[1:]))
    print()
