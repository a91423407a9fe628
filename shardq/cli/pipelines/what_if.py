"""`shardq pipeline what-if`: replay each hour of a queue's jobs under other settings with many tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from shardq.cli.commands.what_if import (
    COLUMNS,
    alternatives_of,
    check_objective,
    no_job,
    read_jobs,
    row_of,
    takes_alternatives,
)
from shardq.cli.output import say
from shardq.cli.parsing import Args
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell
from shardq.cli.table import draw

if TYPE_CHECKING:
    from shardq.whatif.comparison import Comparison

ABOUT = """As `shardq what-if`, for each hour (UTC) by itself: a Spark task for each hour and alternative, with the same
result wherever it runs. Jobs that waited when an hour began come at its begin. The Python of the tasks needs
shardq[embedded]; FOLDER is read here. The report counts the hours in which each alternative keeps the objective."""

EXAMPLES = """  shardq pipeline what-if mails.jobs --workers 4,5,8
  shardq pipeline what-if mails.jobs --since 2d --alternatives tries.toml"""


@pipeline(ABOUT, EXAMPLES)
@takes_alternatives
def run(args: Args, shell: Shell) -> None:
    """Replay, and show a row for each hour and alternative."""
    check_objective(args)
    hours = read_jobs(args).hours(args.queue, args.since, args.before)
    if not hours:
        raise no_job(args)
    alternatives = alternatives_of(args, next(iter(hours.values())))
    with started("what-if", args, shell) as (spark, progress):
        from shardq.spark.pipelines.what_if import compared_by_spark

        with progress.step(f"replaying {len(hours):,} hours"):
            found = compared_by_spark(spark, hours, alternatives, within=args.within)
        progress.report.figures |= {"queue": args.queue, "hours": len(hours)}
        progress.report.remarks += _kept(found, args.objective / 100)
        if shell.json:
            rows = [{"hour": _hour(begin), **asdict(each)} for begin, one in found.items() for each in one.outcomes]
            progress.report.figures["rows"] = rows
        else:
            for begin, one in found.items():
                say(_hour(begin))
                draw(COLUMNS, map(row_of, one.outcomes), right=frozenset(COLUMNS[1:]), folded={"setting": 10})
                say()


def _kept(found: dict[float, Comparison], objective: float) -> list[str]:
    """Say of each alternative in how many hours it keeps the objective."""
    counts: dict[str, int] = {}
    for one in found.values():
        for each in one.outcomes:
            counts[each.name] = counts.get(each.name, 0) + (each.in_time >= objective and not each.never)
    return [f"{name}: the objective is kept in {count:,} of {len(found):,} hours" for name, count in counts.items()]


def _hour(begin: float) -> str:
    return f"{datetime.fromtimestamp(begin, UTC):%Y-%m-%d %H:%M}"
