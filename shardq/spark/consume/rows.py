"""Deliveries as the rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

from shardq.model import Received
from shardq.sharding import key_bytes
from shardq.spark.consume.lease import ReaderLease
from shardq.spark.entries import constant, ms_of, tag_and_payload, text_array
from shardq.spark.options import Leasing
from shardq.spark.parsing import Malformed, parser_of
from shardq.spark.schema import arrow_schema, check_schema, table_schema


def columns_of(wished: StructType | str | None, options: Leasing) -> StructType:
    """The columns of the DataFrame; all of them by default. ConfigError unless deliveries have them."""
    found = StructType.fromDDL(wished) if isinstance(wished, str) else wished or table_schema("leased")
    check_schema("leased", found, options)
    return found


def rows_of(
    spark: SparkSession, queue: str, held: Sequence[Received], columns: StructType, options: Leasing
) -> tuple[DataFrame, list[Malformed]]:
    """The deliveries *held* as a DataFrame, and those which are malformed and to be rejected.

    It has the rows in it: a task that is tried again gets the same ones.
    """
    rejected: list[Malformed] = []
    schema = arrow_schema(columns)
    parser = parser_of(schema, options)
    batch = _batch(queue, held, schema if parser is None else parser.raw)
    if parser is not None:
        batch, rejected = parser.parse(batch)
    return spark.createDataFrame(pa.Table.from_batches([batch]), columns), rejected


def _batch(queue: str, held: Sequence[Received], schema: pa.Schema) -> pa.RecordBatch:
    bodies = [tag_and_payload(each.tag, each.body, each.fields) for each in held]
    keys = [key_bytes(each.shard_key) if each.shard_key else b"" for each in held]
    columns: dict[str, Callable[[pa.DataType], Any]] = {
        "queue": lambda kind: constant(queue, len(held), kind),
        "message_id": lambda kind: pa.array([each.message_id for each in held], kind),
        "shard_key": lambda kind: text_array(keys, kind),
        "count": lambda kind: pa.array([each.count for each in held], kind),
        "last_error": lambda kind: pa.array([each.last_error or None for each in held], kind),
        "written_at": lambda _: ms_of(pa.array([each.message_id.encode() for each in held], pa.binary())),
        "codec": lambda kind: pa.array([tag for tag, _ in bodies], kind),
        "headers": lambda kind: pa.array([[*each.headers.items()] or None for each in held], kind),
        "payload": lambda kind: pa.array([body for _, body in bodies], kind),
        "lease": lambda kind: pa.array([ReaderLease.of(queue, each).text for each in held], kind),
    }
    return pa.record_batch([columns[each.name](each.type) for each in schema], schema=schema)
