"""`consuming`: a block of a Spark job that holds messages, and settles them at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from shardq.arguments import check_name, lease_time, whole
from shardq.client import Client
from shardq.errors import ConfigError
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.settle.settle import reject
from shardq.spark.causes import cause_of
from shardq.spark.connection import client_of, whole_queue_of
from shardq.spark.consume.batches import MAX_HELD, Batches
from shardq.spark.consume.failures import FailedBatch, suspects
from shardq.spark.consume.holding import Room, ack_all, fail, lease, leases_end, let_go, return_unsettled
from shardq.spark.consume.keeper import HoldKeeper
from shardq.spark.ops import holds
from shardq.spark.options import MAX_BYTES, MAX_ROOM, Leasing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shardq.spark.parsing import Malformed


@contextmanager
def consuming(
    spark: SparkSession,
    *,
    url: str,
    queue: str,
    max_in_flight: int = 10_000,
    max_bytes: int = MAX_BYTES,
    visibility: float | None = None,
    ack_on: str = "end",
    schema: StructType | str | None = None,
    parse_mode: str = "",
    column_name_of_corrupt_record: str = "",
) -> Iterator[DataFrame]:
    """Lease up to *max_in_flight* messages of *queue* for a block, as a DataFrame with a column `lease`.

    Their payloads have up to *max_bytes* together, but one message is leased in any case. The leases last *visibility*
    seconds (default: the queue's), and are extended while the block runs. At its end the messages are acked, or with
    *ack_on* "job", where the job settles them by `ack`, `nack` and `reject`, the rest is given back. If the block
    raises, all that it holds is given back uncounted, to come again after a second or more, in smaller blocks of this
    application; messages that make them fail are rejected. ConfigError, QueueMissing.

    With *schema* only its columns are made, and payloads are decoded to the type that it gives them. *parse_mode* says
    what becomes of those that do not fit: REJECT (the default), PERMISSIVE, DROPMALFORMED or FAILFAST (CodecError).

    >>> from shardq import Client
    >>> queue = Client.from_url("redis://localhost:6379").queue("jobs", create=True)
    >>> ids = queue.write_many([(b"hello", "acme"), (b"", "umbrella")])
    >>> with consuming(spark, url="redis://localhost:6379", queue="jobs", schema="shard_key string") as df:
    ...     sorted(row.shard_key for row in df.collect())
    ['acme', 'umbrella']
    """
    _check(ack_on, max_in_flight, max_bytes, visibility)
    options = Leasing(
        url=url,
        ack_on="job" if ack_on == "job" else "commit",
        parse_mode=parse_mode,
        column_name_of_corrupt_record=column_name_of_corrupt_record,
    )
    from shardq.spark.consume.rows import columns_of, rows_of  # which needs Spark

    columns = columns_of(schema, options)
    client, state = client_of(options), whole_queue_of(options, check_name(queue))
    block = Block(client, state, name_of(spark), visibility or state.config.visibility_timeout)
    try:
        block.lease(Room(max_in_flight, max_bytes))
        with closing(HoldKeeper(client, state, block.held, block.visibility)):
            try:
                rows, rejected = rows_of(spark, queue, block.held, columns, options)
                block.reject(rejected)
                yield rows
            except Exception as failure:
                block.fail(cause_of(failure))
                raise
            block.end(ack_on)
    except BaseException:
        let_go(client, state, block.held)
        raise


def _check(ack_on: str, max_in_flight: int, max_bytes: int, visibility: float | None) -> None:
    """ConfigError for an argument of `consuming` that is out of its range."""
    if ack_on not in ("end", "job"):
        raise ConfigError("ack_on is end (the block's end acks all) or job (the job settles each message itself)")
    whole("max_in_flight", max_in_flight, 1, MAX_HELD)
    whole("max_bytes", max_bytes, 1, MAX_ROOM)
    if visibility is not None:
        lease_time("visibility", visibility)


class Block:
    """Some messages of one queue, for one block of the application *name*. *visibility* is in seconds."""

    def __init__(self, client: Client, state: QueueState, name: str, visibility: float) -> None:
        self._client, self._state, self._name = client, state, name
        self.visibility = visibility
        self.held: list[Received] = []
        self._batches = Batches()
        self._size = 0

    def lease(self, limit: Room) -> None:
        """Take messages up to *limit*; fewer after blocks that failed. Suspects have the block for themselves."""
        self._batches = Batches.of(self._client.run(holds.recall(self._state, self._name, "batches")))
        room = self._batches.room(limit.rows)
        lease(self._client, self._state, self.held, Room(room, limit.size), self.visibility)
        chosen = suspects(self.held, lambda each: each.last_error, self._name)
        self._size = room if chosen else len(self.held)
        if chosen:
            tokens = {each.token for each in chosen}
            let_go(self._client, self._state, [each for each in self.held if each.token not in tokens])
            self.held[:] = chosen

    def reject(self, malformed: Sequence[Malformed]) -> None:
        """Make dead letters of what is held and malformed, with the reasons."""
        if malformed:
            reasons = {each.row: each.reason for each in malformed}
            self._client.run(reject(self._state, [self.held[row] for row in reasons], [*reasons.values()]))
            self.held[:] = [each for row, each in enumerate(self.held) if row not in reasons]

    def fail(self, cause: str) -> None:
        """Give back what is still held after an error of the job."""
        held, self.held = self.held, []
        if held:
            with leases_end(self._state):
                fail(self._client, self._state, held, FailedBatch(self._name, self._batches.done, len(held)), cause)
                self._remember(self._batches.failed(self._size))

    def end(self, ack_on: str) -> None:
        """Settle what the job has done."""
        (ack_all if ack_on == "end" else return_unsettled)(self._client, self._state, self.held)
        held, self.held = self.held, []
        if held:
            self._remember(self._batches.succeeded())

    def _remember(self, batches: Batches) -> None:
        self._client.run(holds.remember(self._state, self._name, "batches", batches.text))


def name_of(spark: SparkSession) -> str:
    """The common name of the blocks of one application: text that can be a part of a key."""
    return sha256(spark.conf.get("spark.app.name", "").encode()).hexdigest()[:16]
