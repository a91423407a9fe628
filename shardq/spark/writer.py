"""Rows of a DataFrame into a queue, each once: the writers of `df.write` and `df.writeStream`."""

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
SHOWN = 1024  # of a bad row's shard key that goes along with it
MOST = 1024 * 1024  # bytes of a bad row as a message


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """What one task did."""

    rows: int
    diverted: int


class BatchWriter(DataSourceArrowWriter):
    """Of one `df.write`: goes to the tasks as it is, with the id under which each row is stored once."""

    def __init__(self, options: Writing, write_id: str) -> None:
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """One task: the rows of one partition."""
        return write_partition(self.options, self.write_id, max(0, self.options.batch_id), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All partitions are stored: say so. Nobody knows an id that was made up here, so it will not come again."""
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
                "rows are stored in queue %r; what is remembered of it could not be shortened: %s", queue, error
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some partition failed. What is stored stays, and may be worked on already."""
        done = sum(1 for each in messages if isinstance(each, Wrote))
        log.error(
            "the write to queue %r failed after %d partitions; what they stored stays. Write again with writeId=%s "
            "and the same rows: only what is missing will be stored",
            self.options.queue, done, self.write_id,
        )  # fmt: skip


class StreamWriter(DataSourceStreamArrowWriter):
    """Of one streaming query: its id and the number of the micro-batch say what was stored before."""

    def __init__(self, options: Writing) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """One task: the rows of one partition of a micro-batch."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch is None:
            raise ConfigError("this Spark does not tell tasks the query and micro-batch: use foreachBatch with writeId")
        return write_partition(self.options, self.options.write_id or query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A micro-batch is stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A micro-batch failed. Spark replays it, and what is stored already is not stored again."""


def write_partition(options: Writing, write_id: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Wrote:
    """Store the rows of one partition that are not stored yet; those that are no messages go to the error queue."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    good = Sink(options, options.queue, write_id, partition, batch)
    bad = Sink(options, options.error_queue, write_id, partition, batch) if options.error_queue else None
    encoding, seen = Encoding(options.codec, options.max_payload), 0
    for each in batches:
        rows, wrong = encoded(each, encoding)
        if wrong and bad is None:
            raise ConfigError(
                f"row {seen + wrong[0].row:,} of partition {partition} is no message: {wrong[0].reason}; mend it, or "
                "name an errorQueue for such rows"
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
    """One queue, as one partition of a write fills it."""

    def __init__(self, options: Writing, queue: str, write_id: str, partition: int, batch: int) -> None:
        self._client = client_of(options)
        self._state = queue_of(options, queue, create=options.create)
        self._tally = BulkOffset(write_id, str(partition), batch, options.remember_for)
        self._pace = Pace(options.chunk_size, options.in_flight, options.max_backlog, options.full_timeout)
        self.rows = 0

    def store(self, rows: Rows) -> None:
        """Store these rows, which follow those of the call before."""
        if len(rows):
            self._client.run(store_rows(self._state, self._tally, self.rows, rows, self._pace))
        self.rows += len(rows)

    def finish(self) -> None:
        """No more rows."""
        finish(self._tally, self.rows)


def described(batch: pa.RecordBatch, wrong: list[Bad], write_id: str, partition: int, first: int) -> Rows:
    """Bad rows as messages of their own: what is wrong, where it was, and the row's shard key and payload."""
    picked = batch.take(pa.array([each.row for each in wrong]))
    names = batch.schema.names
    keys = picked.column(names.index("shard_key")).to_pylist()
    payloads = picked.column(names.index("payload")).to_pylist()
    bodies = []
    for each, key, payload in zip(wrong, keys, payloads, strict=True):
        told = {
            "error": each.reason, "write_id": write_id, "partition": partition, "row": first + each.row,
            "shard_key": None if key is None else key[:SHOWN], "payload": payload,
        }  # fmt: skip
        bodies.append(_packed(told))
    return Rows([write_id] * len(bodies), "m", bodies)


def _packed(told: dict[str, Any]) -> bytes:
    """MessagePack, without a payload that is too large for a message or has no encoding."""
    try:
        body = msgspec.msgpack.encode(told)
    except (TypeError, ValueError, OverflowError, RecursionError):
        body = b""
    if body and len(body) <= MOST:
        return body
    return msgspec.msgpack.encode(told | {"payload": None})


def log_sum(queue: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Say in the log what the tasks wrote."""
    wrote = [each for each in messages if isinstance(each, Wrote)]
    rows, diverted = sum(each.rows for each in wrote), sum(each.diverted for each in wrote)
    log.info("%d rows are stored in queue %r, %d were set aside", rows, queue, diverted)
