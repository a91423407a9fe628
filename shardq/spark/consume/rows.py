"""Deliveries as the rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardq.model import Received
from shardq.sharding import key_bytes
from shardq.spark.consume.lease import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = (
    "queue string, message_id string, shard_key string, count int, last_error string, written_at timestamp, "
    "codec string, headers map<string,string>, payload binary, lease string"
)


def rows_of(spark: SparkSession, queue: str, held: Sequence[Received]) -> DataFrame:
    """The deliveries *held* as a DataFrame, which has the rows in it: a task that is tried again gets the same ones."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shardq.spark.entries import constant, ms_of, tag_and_payload, text_array
    from shardq.spark.schema import arrow_schema

    types = StructType.fromDDL(TYPES)
    schema = arrow_schema(types)
    bodies = [tag_and_payload(each.tag, each.body, each.fields) for each in held]
    columns = {
        "queue": constant(queue, len(held), pa.string()),
        "message_id": [each.message_id for each in held],
        "shard_key": text_array([key_bytes(each.shard_key) if each.shard_key else b"" for each in held], pa.string()),
        "count": [each.count for each in held],
        "last_error": [each.last_error or None for each in held],
        "written_at": ms_of(pa.array([each.message_id.encode() for each in held], pa.binary())),
        "codec": [tag for tag, _ in bodies],
        "headers": pa.array([[*each.headers.items()] or None for each in held], schema.field("headers").type),
        "payload": [body for _, body in bodies],
        "lease": [Lease.of(queue, each).text for each in held],
    }
    return spark.createDataFrame(pa.table(columns, schema=schema), types)
