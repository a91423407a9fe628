"""`shardq pipeline fairness`: how fair a queue was, from its journal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shardq.cli.exits import OK, UsageError
from shardq.cli.parsing import Commands, number
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.table import draw

if TYPE_CHECKING:
    from shardq.spark.pipelines.fairness.findings import Findings

ABOUT = """Reads journal events from EVENTS, an archive or other table with the journal's columns; without it the
journal that the queue has now (configure journal=1000000). Tells for each window and shard key the volume, its
fair share and what it got, pick-up delays, Jain's index, who was noisy and who shares streams with the noisy.

--out is a folder for the tables as Parquet, a picture and a page that needs nothing beside it."""

EXAMPLES = """  shardq pipeline fairness archive/journal --out report/
  shardq pipeline fairness --queue jobs --window 10
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


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Judge, print, draw."""
    if (args.streams is None) != (args.per_shard is None):
        raise UsageError("--streams and --per-shard go together")
    if args.events is None and args.queue is None:
        raise UsageError("say where the events are, or with --queue whose journal to read")
    dealt = _dealt(args, shell)
    with started("fairness", args, shell) as (spark, progress):
        from shardq.spark.pipelines.fairness.pipeline import Asked
        from shardq.spark.pipelines.fairness.pipeline import run as judge
        from shardq.spark.pipelines.inputs import read_journal, read_table

        with progress.step(f"looking at {args.events or args.queue}"):
            if args.events is None:
                events = read_journal(spark, shell.url, args.queue)
            else:
                events = read_table(spark, args.events, form=args.format)
        told = judge(events, Asked(args.window, dealt, args.queue, args.out), progress)
        if not shell.json:
            for each in told:
                _table(each)
    return OK


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
