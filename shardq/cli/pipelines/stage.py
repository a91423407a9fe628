"""The common parts of the commands of all pipelines: where Spark runs, progress on stderr, the report on stdout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, Command, Parser, Run, command, takes
from shardq.cli.pipelines.ending import Ending
from shardq.cli.pipelines.status_line import StatusLine
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import json_line, printable
from shardq.extras import extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardq.spark.pipelines.report import PipelineProgress, Report


def pipeline(about: str, examples: str) -> Callable[[Run], Command]:
    """As `command`, with the options that all pipelines have. A missing package is named before Redis is asked."""

    def decorated(run: Run) -> Command:
        @wraps(run)
        def checked(args: Args, shell: Shell) -> int | None:
            _check_install()
            return run(args, shell)

        return command(about, examples, extra="spark")(takes(_add_spark)(checked))

    return decorated


def _add_spark(parser: Parser) -> None:
    spark = parser.add_argument_group("Spark")
    spark.add_argument(
        "--master", metavar="URL", help="where Spark runs, such as local[4] or spark://host:7077 (local[*])"
    )
    spark.add_argument(
        "--conf",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )


def setting(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, a setting of Spark."""
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"must be spark.NAME=VALUE, not {text!r}")
    return key, value


def connecting(args: Args, shell: Shell) -> dict[str, str]:
    """The options of format("shardq") that say where Redis is, and how long a task tries while it does not answer."""
    return {"url": shell.url, **({} if args.timeout is None else {"timeout": f"{args.timeout:g}"})}


@contextmanager
def started(name: str, args: Args, shell: Shell) -> Iterator[tuple[SparkSession, PipelineProgress]]:
    """Spark and the progress of the pipeline *name*; its report is printed when all went well."""
    from pyspark.sql import SparkSession

    from shardq.spark.pipelines.report import PipelineProgress, Report
    from shardq.spark.pipelines.session import explained, session
    from shardq.spark.pipelines.watch import Watch

    line, ours = StatusLine(sys.stderr), SparkSession.getActiveSession() is None
    ending = Ending(line, follows=getattr(args, "every", None) is not None)
    progress = PipelineProgress(Report(name), line.remark, Watch(line.update, line.every), check=ending.check)
    try:
        with ending.heeded(), _stopped_after(ours):
            with progress.step("starting Spark"), explained():
                spark = session(name, master=args.master, settings=dict(args.conf), tell=line.forward)
            ending.stops(spark)
            with explained():
                yield spark, progress
    except BaseException:
        if ending.number is None:
            raise
    if ending.number is not None:
        line.remark(ending.told())
    if ending.number is None or (ending.follows and progress.report.figures):
        show(progress.report, shell)
        sys.stdout.flush()  # the end of the command leaves stdout as it is
    ending.check()


@contextmanager
def _stopped_after(ours: bool) -> Iterator[None]:
    """Stop Spark at the end of this context, if it is *ours* and not a session that was there before."""
    from shardq.spark.pipelines.session import stop

    try:
        yield
    finally:
        if ours:
            stop()


def _check_install() -> None:
    """PySpark needs pandas as soon as a function uses Arrow. Its own message does not name the extra of shardq."""
    from shardq.spark import check_install

    check_install()
    with extra("spark"):
        import pandas  # noqa: F401


def show(report: Report, shell: Shell) -> None:
    """Print a report: remarks first, then figures, then how long each step took."""
    if shell.json:
        say(json_line(report.fields()))
        return
    for text in report.remarks:
        say(printable(text))
    pairs = [(name.replace("_", " "), _text(value)) for name, value in report.figures.items() if _plain(value)]
    if pairs:
        say(facts(pairs))
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.seconds.items())
    remark(f"{report.name} took {sum(report.seconds.values()):.1f} s: {times}")


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
