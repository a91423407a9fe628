"""Which streams each shard key has: as queues deal them, or as the journal shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shardq.sharding import check_width, shard

Batches = Iterator[pa.RecordBatch]


def dealt(keys: DataFrame, streams: int, streams_per_shard: int) -> DataFrame:
    """The rows of *keys* with one more column, `streams`: the shard that such a queue deals to `shard_key`.

    ConfigError for numbers that no queue can have; an invalid shard key fails the job with ConfigError.
    """
    check_width(streams, streams_per_shard)

    def deal(batches: Batches) -> Batches:
        for batch in batches:
            shards = [shard(key, streams, streams_per_shard) for key in batch.column("shard_key").to_pylist()]
            yield batch.append_column("streams", pa.array(shards, pa.list_(pa.int32())))

    names = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in keys.schema)
    return keys.mapInArrow(deal, f"{names}, streams array<int>")


def seen(events: DataFrame) -> DataFrame:
    """`queue`, `shard_key` and `streams` of journal events: those in which a message was stored, held back or not."""
    found = events.where(F.col("stream").isNotNull() & F.col("shard_key").isNotNull())
    return found.groupBy("queue", "shard_key").agg(F.sort_array(F.collect_set("stream")).alias("streams"))
