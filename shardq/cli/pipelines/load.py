"""`shardq pipeline load`: write the rows of a table into a queue."""

from __future__ import annotations

import argparse

from shardq.cli.exits import OK
from shardq.cli.parsing import Commands, number
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell

ABOUT = """Each row of ROWS becomes one message. If a load failed or was interrupted, run it again with the same files:
it writes only the rows that are missing. Runs with the same id are the same load; the id is made from the names of the
files, unless --id gives one.

The payload is the column --payload as it is, or else an object of all columns that no other option names."""

EXAMPLES = """  shardq pipeline load day.parquet jobs --key tenant
  shardq pipeline load orders.csv jobs --key customer --payload order --delay wait
  shardq pipeline load db.orders jobs --format table --key tenant --id orders-2026-07-01"""


def register(names: Commands) -> None:
    """Add the parser."""
    parser = pipeline(names, "load", run, "write the rows of a table into a queue", about=ABOUT, examples=EXAMPLES)
    parser.add_argument("rows", metavar="ROWS", help="a file, folder, glob or table")
    parser.add_argument("queue", metavar="QUEUE", help="the queue's name")
    parser.add_argument("--format", metavar="F", help="format of ROWS: parquet, json, csv, orc, table (by its name)")
    parser.add_argument(
        "--schema", metavar="DDL", help="schema of ROWS, such as 'tenant string, at timestamp' (as found)"
    )
    parser.add_argument("--key", metavar="COLUMN", required=True, help="the column of the shard key")
    parser.add_argument("--payload", metavar="COLUMN", help="the column of the payload (all other columns)")
    parser.add_argument("--delay", metavar="COLUMN", help="column of seconds until the message may be delivered")
    parser.add_argument("--deadline", metavar="COLUMN", help="column of seconds after which it is not delivered")
    parser.add_argument("--dedup", metavar="COLUMN", help="the column of the dedup key")
    parser.add_argument(
        "--codec", choices=("json", "msgpack"), help="codec of the payloads (json, unless they are bytes or text)"
    )
    parser.add_argument("--create", action="store_true", help="create the queue if it does not exist")
    parser.add_argument(
        "--errors", metavar="QUEUE", help="write rows that are no valid messages there, instead of failing"
    )
    parser.add_argument(
        "--max-backlog", type=number(1), metavar="B", help="wait while the queue's backlog has B messages or more"
    )
    parser.add_argument("--id", metavar="ID", help="the id of this load (made from the files' names)")


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Load the rows."""
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
