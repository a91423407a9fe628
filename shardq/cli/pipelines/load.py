"""`shardq pipeline load`: rows of a table into a queue."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.parsing import Commands, number
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell

ABOUT = """Each row of ROWS becomes a message, once: a load that failed or was interrupted is completed by running it
again with the same files, and doing so once more changes nothing. Its id is made of the files' names, or given.

The payload is one column, as it is, or without --payload all columns that are not said to be something else."""

EXAMPLES = """  shardq pipeline load day.parquet jobs --key tenant
  shardq pipeline load orders.csv jobs --key customer --payload order --delay wait
  shardq pipeline load db.orders jobs --format table --key tenant --id orders-2026-07-01"""


def register(names: Commands) -> None:
    """Add the parser."""
    parser = pipeline(names, "load", run, "write the rows of a table into a queue", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("rows", metavar="ROWS", help="a file, folder, glob or table")
    parser.add_argument("queue", metavar="QUEUE", help="the queue's name")
    parser.add_argument("--format", metavar="F", help="of ROWS: parquet, json, csv, orc, table (by its name)")
    parser.add_argument("--schema", metavar="DDL", help="of ROWS, such as 'tenant string, at timestamp' (as found)")
    parser.add_argument("--key", metavar="COLUMN", required=True, help="the shard key")
    parser.add_argument("--payload", metavar="COLUMN", help="the payload (all others)")
    parser.add_argument("--delay", metavar="COLUMN", help="seconds until the message may be delivered")
    parser.add_argument("--deadline", metavar="COLUMN", help="seconds after which it is not delivered any more")
    parser.add_argument("--dedup", metavar="COLUMN", help="the dedup key")
    parser.add_argument("--codec", choices=("json", "msgpack"), help="of payloads (json if not bytes or text)")
    parser.add_argument("--create", action="store_true", help="create the queue, with default settings, if need be")
    parser.add_argument(
        "--errors", metavar="QUEUE", help="rows that cannot be messages go there, and do not fail the load"
    )
    parser.add_argument(
        "--max-backlog", type=number(1), metavar="B", help="wait while the queue holds so many messages"
    )
    parser.add_argument("--id", metavar="ID", help="of this load")


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Load."""
    if not args.create:
        shell.existing(args.queue)
    with started("load", args, shell) as (spark, progress):
        from shardq.spark.pipelines.inputs import read_table
        from shardq.spark.pipelines.load import PARTITIONS, Columns, identity, load, messages

        spark.conf.set("spark.sql.files.minPartitionNum", str(PARTITIONS))
        columns = Columns(args.key, args.payload, args.delay, args.deadline, args.dedup)
        with progress.step(f"looking at {args.rows}"):
            rows = read_table(spark, args.rows, form=args.format, schema=args.schema)
        made = messages(rows, columns)
        write_id = args.id or identity(rows, args.queue, columns)
        plain = dict(made.dtypes)["payload"] in ("binary", "string")
        options = {
            "url": shell.url, "create": str(args.create).lower(), "codec": args.codec or ("" if plain else "json"),
            **({"errorQueue": args.errors} if args.errors else {}),
            **({"maxBacklog": str(args.max_backlog)} if args.max_backlog else {}),
        }  # fmt: skip
        load(made, args.queue, write_id, options, progress)
    return OK
