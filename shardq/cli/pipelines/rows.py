"""The common parts of `load` and `route`: options for reading rows, and for making messages of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, Parser
from shardq.cli.pipelines.stage import connecting
from shardq.cli.shell import Shell
from shardq.cli.values import number, pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shardq.spark.pipelines.load import LoadColumns


def add_rows(parser: Parser, name: str) -> None:
    """Add the rows, called *name*, and how to read them."""
    parser.add_argument(name, metavar=name.upper(), help="a file, folder, glob or table")
    parser.add_argument(
        "--format", metavar="F", help=f"format of {name.upper()}: parquet, json, csv, orc, table (by its name)"
    )
    parser.add_argument(
        "--schema",
        metavar="DDL",
        help=f"schema of {name.upper()}, such as 'tenant string, at timestamp' (as found; text, if CSV)",
    )
    parser.add_argument(
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Spark's reader, such as 'sep=;'; may be repeated",
    )


def add_message(parser: Parser) -> None:
    """Add which column becomes which part of a message, and what to do with rows that are none."""
    parser.add_argument("--key", metavar="COLUMN", required=True, help="the column of the shard key")
    parser.add_argument("--payload", metavar="COLUMN", help="the column of the payload (all other columns)")
    parser.add_argument("--delay", metavar="COLUMN", help="column of seconds until the message may be delivered")
    parser.add_argument("--deadline", metavar="COLUMN", help="column of seconds after which it is not delivered")
    parser.add_argument("--dedup", metavar="COLUMN", help="the column of the dedup key")
    parser.add_argument(
        "--idempotence",
        choices=("row", "key"),
        default="row",
        help="rows that another run passes over: the same rows in the same order, or rows with a known --dedup (row)",
    )
    parser.add_argument("--headers", metavar="COLUMN", help="the column of the headers, a map or an object")
    parser.add_argument(
        "--codec", choices=("json", "msgpack"), help="codec of the payloads (json, unless they are bytes or text)"
    )
    parser.add_argument(
        "--max-payload", type=number(1), metavar="BYTES", help="the most bytes of a payload (1,048,576)"
    )
    parser.add_argument(
        "--errors", metavar="QUEUE", help="write rows that are no valid messages there, instead of failing"
    )
    parser.add_argument(
        "--max-backlog", type=number(1), metavar="B", help="wait while the queue's backlog has B messages or more"
    )


def columns_of(args: Args) -> LoadColumns:
    """The columns that the options name."""
    from shardq.spark.pipelines.load import LoadColumns

    return LoadColumns(args.key, args.payload, args.delay, args.deadline, args.dedup, args.headers)


def locating(args: Args, path: str, spark: SparkSession) -> AbstractContextManager[None]:
    """The context in which errors name the line of the rows in *path* that cannot be parsed."""
    from shardq.spark.pipelines.inputs import located

    return located(spark, path, form=args.format, schema=args.schema, options=dict(args.option))


def writing(args: Args, shell: Shell, made: DataFrame, *, create: bool) -> dict[str, str]:
    """The options of format("shardq") for the rows *made* of messages."""
    if args.idempotence == "key" and args.dedup is None:
        raise UsageError("--idempotence key needs --dedup")
    plain = dict(made.dtypes)["payload"] in ("binary", "string")
    return {
        **connecting(args, shell), "create": str(create).lower(), "codec": args.codec or ("" if plain else "json"),
        "idempotence": args.idempotence,
        **({"errorQueue": args.errors} if args.errors else {}),
        **({"maxBacklog": str(args.max_backlog)} if args.max_backlog else {}),
        **({"maxPayload": str(args.max_payload)} if args.max_payload else {}),
    }  # fmt: skip
