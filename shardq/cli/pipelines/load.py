"""`shardq pipeline load`: write the rows of a table into a queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, add_queue, argument, flag, takes
from shardq.cli.pipelines.rows import add_message, add_rows, columns_of, locating, writing
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardq.spark.pipelines.report import PipelineProgress

ABOUT = """Each row of ROWS becomes one message. If a load failed or was interrupted, run it again with the same files:
it writes only the rows that are missing. Runs with the same id are the same load. The id is made from the names, sizes
and times of the files, so a folder with one more file, a folder inside it, or a file that was touched is another load,
and all of it is written. To add what is new, give both runs one --run-id, or follow the folder.

--follow loads each file of a folder once: those that are new since the last run with the same --checkpoint. Put files
there whole (by renaming them), and do not change them.

The payload is the column --payload as it is, or else an object of all columns that no other option names."""

EXAMPLES = """  shardq pipeline load day.parquet jobs --key tenant
  shardq pipeline load orders.csv jobs --key me --payload order --delay wait
  shardq pipeline load new/ jobs --key me --follow --checkpoint c/ --every 9s
  shardq pipeline load db.orders jobs --format table --key me --run-id orders-07"""


@pipeline(ABOUT, EXAMPLES)
@takes(partial(add_rows, name="rows"), add_queue, add_message)
@flag("create")
@flag("run_id")
@flag("follow", "; ROWS is a folder")
@argument("--checkpoint", metavar="DIR", help="with --follow: the folder that knows which files are loaded")
@flag("every", ", with --follow")
def run(args: Args, shell: Shell) -> None:
    """Load the rows."""
    if args.follow != (args.checkpoint is not None):
        raise UsageError("--follow needs --checkpoint, and --checkpoint needs --follow")
    if args.every is not None and not args.follow:
        raise UsageError("--every needs --follow")
    if not args.create:
        shell.existing(args.queue)
    with started("load", args, shell) as (spark, progress), locating(args, args.rows, spark):
        (_follow if args.follow else _load)(args, shell, spark, progress)


def _load(args: Args, shell: Shell, spark: SparkSession, progress: PipelineProgress) -> None:
    """Load the rows that there are now."""
    from shardq.spark.pipelines.earlier import tell_known
    from shardq.spark.pipelines.inputs import read_table, text_lines
    from shardq.spark.pipelines.load import identity, load, messages

    columns, reading = columns_of(args), dict(args.option)
    with progress.step(f"looking at {args.rows}"):
        rows = read_table(spark, args.rows, form=args.format, schema=args.schema, options=reading)
        made = messages(rows, columns, text_lines(args.rows, args.format, reading))
        write_id = args.run_id or identity(rows, args.queue, columns, sorted(reading.items()))
    options = writing(args, shell, made, create=args.create)
    tell_known(rows, [args.queue], write_id, options, progress)
    load(made, args.queue, write_id, options, progress)


def _follow(args: Args, shell: Shell, spark: SparkSession, progress: PipelineProgress) -> None:
    """Load the files that are new in a folder; with --every also later ones."""
    from shardq.spark.pipelines.inputs import follow_files, text_lines
    from shardq.spark.pipelines.landing import Landing, landing_id
    from shardq.spark.pipelines.load import messages

    with progress.step(f"looking at {args.rows}"):
        rows = follow_files(spark, args.rows, form=args.format, schema=args.schema, options=dict(args.option))
        made = messages(rows, columns_of(args), text_lines(args.rows, args.format, dict(args.option)))
        write_id = args.run_id or landing_id(spark, args.rows, args.queue)
    landing = Landing(args.queue, write_id, args.checkpoint, args.every)
    landing.claim(spark, args.rows)
    landing.follow(made, writing(args, shell, made, create=args.create), progress)
