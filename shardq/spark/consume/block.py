"""`consuming`: a block of a Spark job that holds messages, and settles them at its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardq.arguments import check_name, lease_time, whole
from shardq.client import Client
from shardq.errors import ConfigError, ShardqError
from shardq.model import Received
from shardq.ops.read import MAX_COUNT, read
from shardq.ops.settle import Settled, ack, nack
from shardq.ops.state import QueueState
from shardq.spark.connection import client_of, queue_of
from shardq.spark.consume.keeper import Keeper
from shardq.spark.consume.rows import rows_of
from shardq.spark.options import Connecting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("shardq")
MOST = 100_000


@contextmanager
def consuming(
    spark: SparkSession,
    *,
    url: str,
    queue: str,
    max_in_flight: int = 10_000,
    visibility: float | None = None,
    ack_on: str = "end",
) -> Iterator[DataFrame]:
    """Lease up to *max_in_flight* messages of *queue* for a block, as a DataFrame with a column `lease`.

    The leases last *visibility* seconds (default: the queue's), and are extended while the block runs. At its end the
    messages are acked, or with *ack_on* "job", where the job settles them itself by `ack`, `nack` and `reject`, what it
    left is given back. If the block raises, all that it still holds is given back. ConfigError, QueueMissing.
    """
    if ack_on not in ("end", "job"):
        raise ConfigError("ack_on is end (the block's end acks all) or job (the job settles each message itself)")
    whole("max_in_flight", max_in_flight, 1, MOST)
    if visibility is not None:
        lease_time("visibility", visibility)
    options = Connecting(url=url)
    client, state = client_of(options), queue_of(options, check_name(queue))
    lasting = visibility or state.config.visibility_timeout
    held: list[Received] = []
    try:
        _lease(client, state, held, max_in_flight, lasting)
        with Keeper(client, state, held, lasting):
            yield rows_of(spark, queue, held)
            if ack_on == "end":
                _ack(client, state, held)
    except BaseException as failure:
        _give_back(client, state, held, f"the block of a Spark job failed: {type(failure).__name__}")
        raise
    if ack_on == "job":
        client.run(nack(state, held, error="a Spark job left the message unsettled"))


def _lease(client: Client, state: QueueState, held: list[Received], most: int, visibility: float) -> None:
    """Read as workers do, so that the admission window holds, until there are *most* or the queue gives none."""
    while len(held) < most:
        found = client.run(read(state, min(MAX_COUNT, most - len(held)), 0.0, visibility))
        if not found:
            return
        held += found


def _ack(client: Client, state: QueueState, held: Sequence[Received]) -> None:
    """Ack what the block did. A lease that ended before is no failure of the block, but its message comes again."""
    results = client.run(ack(state, held)) if held else []
    if lost := results.count(Settled.LOST):
        name = state.keys.name
        log.warning("%d of %d messages of queue %r were settled before, or come again", lost, len(held), name)


def _give_back(client: Client, state: QueueState, held: Sequence[Received], error: str) -> None:
    """Give back what is still held. If Redis does not answer, the leases end by themselves."""
    try:
        client.run(nack(state, held, error=error))
    except ShardqError as failure:
        log.warning("messages of queue %r come again when their leases end: %s", state.keys.name, failure)
