"""The writers of `df.write` and `df.writeStream`, which store each row of a DataFrame in a queue once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from shardq.errors import ConfigError, ShardqError
from shardq.ops.bulk import BulkOffset, Pace, Rows, complete, finish, store_rows
from shardq.spark.columns import Bad, Encoding, encoded
from shardq.spark.connection import client_of, queue_of
from shardq.spark.options import Writing

log = logging.getLogger("shardq")
SHOWN = 1024  # how much of a bad row's shard key its message in the error queue has
MOST = 1024 * 1024  # bytes of a bad row's message in the error queue, at most


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """How many rows one task stored in the queue, and in the error queue (`diverted`)."""

    rows: int
    diverted: int


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `df.write`. It is copied to the tasks, with the id under which each row is stored once."""

    def __init__(self, options: Writing, write_id: str) -> None:
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """Store the rows of one partition; runs in a task."""
        return write_partition(self.options, self.write_id, max(0, self.options.batch_id), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called when all partitions are stored.

        If the id was made up here, nobody can repeat the write, so its bulk offsets are marked as complete.
        """
        log_sum(self.options.queue, messages)
        if not self.options.write_id:
            for queue in filter(None, (self.options.queue, self.options.error_queue)):
                self._complete(queue, len(messages))

    def _complete(self, queue: str, partitions: int) -> None:
        offsets = [BulkOffset(self.write_id, str(partition)) for partition in range(partitions)]
        try:
            client_of(self.options).run(complete(queue_of(self.options, queue, create=False), offsets))
        except ShardqError as error:
            log.warning(
                "the rows are stored in queue %r, but their bulk offsets could not be marked as complete: %s",
                queue,
                error,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called when a partition failed. Rows that were stored stay, and may have been delivered already."""
        done = sum(1 for each in messages if isinstance(each, Wrote))
        log.error(
            "the write to queue %r failed after %d partitions; what they stored stays. Write again with writeId=%s "
            "and the same rows: only what is missing will be stored",
            self.options.queue, done, self.write_id,
        )  # fmt: skip


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one streaming query. Its id and the number of the micro-batch tell which rows are stored."""

    def __init__(self, options: Writing) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """Store the rows of one partition of a micro-batch; runs in a task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch is None:
            raise ConfigError("this Spark does not tell tasks the query and micro-batch: use foreachBatch with writeId")
        return write_partition(self.options, self.options.write_id or query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Called when a micro-batch is stored; there is nothing left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Called when a micro-batch failed. Spark replays it, and rows that are stored are not stored again."""


def write_partition(options: Writing, write_id: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Wrote:
    """Store the rows of one partition that are not stored yet; invalid rows go to the error queue."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    good = Sink(options, options.queue, write_id, partition, batch)
    bad = Sink(options, options.error_queue, write_id, partition, batch) if options.error_queue else None
    encoding, seen = Encoding(options.codec, options.max_payload), 0
    for each in batches:
        rows, wrong = encoded(each, encoding)
        if wrong and bad is None:
            raise ConfigError(
                f"row {seen + wrong[0].row:,} of partition {partition} is no valid message: {wrong[0].reason}; fix "
                "it, or name an errorQueue for such rows"
            )
        good.store(rows)
        if wrong and bad is not None:
            bad.store(described(each, wrong, write_id, partition, seen))
        seen += each.num_rows
    good.finish()
    if bad is not None:
        bad.finish()
    return Wrote(good.rows, bad.rows if bad is not None else 0)


class Sink:
    """Stores the rows of one partition in one queue."""

    def __init__(self, options: Writing, queue: str, write_id: str, partition: int, batch: int) -> None:
        self._client = client_of(options)
        self._state = queue_of(options, queue, create=options.create)
        self._offset = BulkOffset(write_id, str(partition), batch, options.remember_for)
        self._pace = Pace(options.chunk_size, options.in_flight, options.max_backlog, options.full_timeout)
        self.rows = 0

    def store(self, rows: Rows) -> None:
        """Store these rows, which come after those of the earlier calls."""
        if len(rows):
            self._client.run(store_rows(self._state, self._offset, self.rows, rows, self._pace))
        self.rows += len(rows)

    def finish(self) -> None:
        """Called after the last row."""
        finish(self._offset, self.rows)


def described(batch: pa.RecordBatch, wrong: list[Bad], write_id: str, partition: int, first: int) -> Rows:
    """The messages for the error queue: the reason, the place of the row, its shard key and its payload."""
    picked = batch.take(pa.array([each.row for each in wrong]))
    names = batch.schema.names
    keys = picked.column(names.index("shard_key")).to_pylist()
    payloads = picked.column(names.index("payload")).to_pylist()
    bodies = []
    for each, key, payload in zip(wrong, keys, payloads, strict=True):
        problem = {
            "error": each.reason, "write_id": write_id, "partition": partition, "row": first + each.row,
            "shard_key": None if key is None else key[:SHOWN], "payload": payload,
        }  # fmt: skip
        bodies.append(_packed(problem))
    return Rows([write_id] * len(bodies), "m", bodies)


def _packed(problem: dict[str, Any]) -> bytes:
    """*problem* as MessagePack, without the payload if that is too large or cannot be encoded."""
    try:
        body = msgspec.msgpack.encode(problem)
    except (TypeError, ValueError, OverflowError, RecursionError):
        body = b""
    if body and len(body) <= MOST:
        return body
    return msgspec.msgpack.encode(problem | {"payload": None})


def log_sum(queue: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log how many rows the tasks stored."""
    wrote = [each for each in messages if isinstance(each, Wrote)]
    rows, diverted = sum(each.rows for each in wrote), sum(each.diverted for each in wrote)
    log.info("%d rows are stored in queue %r, %d bad rows in the error queue", rows, queue, diverted)
