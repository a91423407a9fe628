"""`consuming`: a block of a Spark job that holds messages, and settles them at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardq.arguments import check_name, lease_time, whole
from shardq.errors import ConfigError
from shardq.model import Received
from shardq.spark.connection import client_of, queue_of
from shardq.spark.consume.holding import MOST, ack_all, give_back, lease, return_unsettled
from shardq.spark.consume.keeper import Keeper
from shardq.spark.consume.malformed import reject_held
from shardq.spark.consume.rows import columns_of, rows_of
from shardq.spark.options import Leasing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@contextmanager
def consuming(
    spark: SparkSession,
    *,
    url: str,
    queue: str,
    max_in_flight: int = 10_000,
    visibility: float | None = None,
    ack_on: str = "end",
    schema: StructType | str | None = None,
    parse_mode: str = "",
    column_name_of_corrupt_record: str = "",
) -> Iterator[DataFrame]:
    """Lease up to *max_in_flight* messages of *queue* for a block, as a DataFrame with a column `lease`.

    The leases last *visibility* seconds (default: the queue's), and are extended while the block runs. At its end the
    messages are acked, or with *ack_on* "job", where the job settles them itself by `ack`, `nack` and `reject`, what it
    left is given back. If the block raises, all that it still holds is given back. ConfigError, QueueMissing.

    With *schema* only its columns are made, and payloads are decoded to the type that it gives them. What becomes of
    those that do not fit says *parse_mode*: REJECT (the default), PERMISSIVE, DROPMALFORMED or FAILFAST (CodecError).
    """
    if ack_on not in ("end", "job"):
        raise ConfigError("ack_on is end (the block's end acks all) or job (the job settles each message itself)")
    whole("max_in_flight", max_in_flight, 1, MOST)
    if visibility is not None:
        lease_time("visibility", visibility)
    options = Leasing(
        url=url,
        ack_on="job" if ack_on == "job" else "commit",
        parse_mode=parse_mode,
        column_name_of_corrupt_record=column_name_of_corrupt_record,
    )
    columns = columns_of(schema, options)
    client, state = client_of(options), queue_of(options, check_name(queue))
    lasting = visibility or state.config.visibility_timeout
    held: list[Received] = []
    try:
        lease(client, state, held, max_in_flight, lasting)
        with Keeper(client, state, held, lasting):
            rows, rejected = rows_of(spark, queue, held, columns, options)
            reject_held(client, state, held, rejected)
            yield rows
            if ack_on == "end":
                ack_all(client, state, held)
    except BaseException as failure:
        give_back(client, state, held, f"the block of a Spark job failed: {type(failure).__name__}")
        raise
    if ack_on == "job":
        return_unsettled(client, state, held)
