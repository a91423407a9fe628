"""`shardq pipeline plan`: choose streams and streams per shard for millions of tenants, one by one."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from shardq.cli.output import say
from shardq.cli.parsing import Args, argument, flag
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import duration
from shardq.cli.values import number

if TYPE_CHECKING:
    from shardq.spark.pipelines.planning.verdict import Verdict

ABOUT = """Examines every tenant under each candidate, N streams with M per shard: how many of its streams no flood
writes to, which tenants a flood hits, and how long a message of its own waits. The tenants come from TENANTS, a table
with the columns shard_key and load, of which the busiest flood; without it --tenants are assumed. Of the candidates
with which the share --isolation of the quiet tenants waits at most --within seconds, it recommends the one with the
smallest product of streams and busy streams (streams that a flood writes to).

`shardq server size` answers the same for tenants that are all alike, from formulas and without Spark."""

EXAMPLES = """  shardq pipeline plan --tenants 10000000 --noisy 20
  shardq pipeline plan --tenants 1000000 --candidate 64x4 --candidate 256x3
  shardq pipeline plan loads.parquet --noisy 5 --service 800 --json"""

COLUMNS = (
    "streams", "per shard", "in time", "isolated", "no clean", "wait p50", "p99", "p99.9", "worst", "messages p99",
    "hottest", "same shard", "",
)  # fmt: skip


def _numbers(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"must be streams x streams per shard, such as 64x4, not {text!r}")
    return int(found[1]), int(found[2])


@pipeline(ABOUT, EXAMPLES)
@argument("table", nargs="?", metavar="TENANTS", help="a table with shard_key and load (such as a number of messages)")
@argument("--format", metavar="F", help="format of TENANTS: parquet, json, csv, orc, table (by its name)")
@flag("tenants", " that are assumed (10,000,000)", default=10_000_000)
@argument("--skew", type=float, metavar="S", default=1.0, help="loads of assumed tenants fall as 1 / rank^S (1)")
@flag("noisy")
@argument("--flood", type=number(1), metavar="F", default=10_000, help="messages of each flood (10,000)")
@argument("--service", type=float, metavar="R", default=1000.0, help="messages per second of all workers (1,000)")
@argument("--used", type=float, metavar="U", default=0.5, help="share of that for messages that come meanwhile (0.5)")
@argument("--window", type=number(0), metavar="W", default=1, help="the queue's admission window; 0 for none (1)")
@flag("within", " (1s)", default=1.0)
@flag("isolation", ", in time")
@argument(
    "--candidate",
    type=_numbers,
    action="append",
    metavar="NxM",
    help="examine this one; repeatable (those of shardq server size)",
)
@flag("seed")
def run(args: Args, shell: Shell) -> None:
    """Examine the tenants, choose a candidate, print."""
    with started("plan", args, shell) as (spark, progress):
        from shardq.spark.pipelines.inputs import read_table
        from shardq.spark.pipelines.planning import pipeline as planning
        from shardq.spark.pipelines.planning.model import Load
        from shardq.spark.pipelines.planning.survey import Candidate

        load = Load(args.noisy, args.flood, args.service, args.used, args.window)
        goal = planning.Goal(load, args.isolation, args.within)
        table, count = None, args.tenants
        if args.table is not None:
            with progress.step(f"counting the tenants of {args.table}"):
                table = planning.tenants_of(read_table(spark, args.table, form=args.format, typed=("load",)))
                count = planning.count_tenants(table)
        tried = [Candidate(*each) for each in args.candidate or ()] or planning.candidates(count, goal)
        with progress.step(f"surveying {count:,} tenants under {len(tried)} candidates"):
            if table is None:
                surveys = planning.survey_assumed(spark, count, tried, goal, skew=args.skew, seed=args.seed)
            else:
                surveys = planning.survey_named(table, tried, goal)
        chosen, verdicts = planning.judge(surveys, goal, progress)
        if not shell.json:
            draw(COLUMNS, [_row(each, each is chosen) for each in verdicts], right=frozenset(COLUMNS))
            say()


def _row(each: Verdict, chosen: bool) -> tuple[str, ...]:
    return (
        f"{each.candidate.streams:,}", str(each.candidate.width), f"{each.in_time:.3%}", f"{each.isolated:.3%}",
        f"{each.without_clean:,}", *map(duration, (*each.waits, each.worst, each.loaded_wait)), f"{each.hottest:.2f}",
        f"{each.same_shard:.2g}", "<-" if chosen else "",
    )  # fmt: skip
