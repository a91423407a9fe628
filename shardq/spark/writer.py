"""The writers of `df.write` and `df.writeStream`, which store each row of a DataFrame in a queue once."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from shardq.errors import ConfigError, ShardqError
from shardq.ops.bulk import BulkOffset, Pace, Rows, complete, finish, store_rows
from shardq.ops.state import QueueState
from shardq.spark.columns import Bad, Encoding, encoded
from shardq.spark.connection import client_of, queue_of
from shardq.spark.options import Writing

log = logging.getLogger("shardq")
SHOWN = 1024  # how much of a bad row's shard key its message in the error queue has
LONGEST = 200  # bytes of the name of a part
MOST = 1024 * 1024  # bytes of a bad row's message in the error queue, at most


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """How many rows one task stored in the queue, and in the error queue (`diverted`), and the parts they are of."""

    rows: int
    diverted: int
    parts: tuple[tuple[str, str], ...] = ()


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
        log_sum(self.options.queue or "of each row", messages)
        if not self.options.write_id:
            parts = defaultdict(list)
            for queue, part in (each for wrote in messages if isinstance(wrote, Wrote) for each in wrote.parts):
                parts[queue].append(part)
            for queue, found in parts.items():
                self._complete(queue, found)

    def _complete(self, queue: str, parts: Sequence[str]) -> None:
        offsets = [BulkOffset(self.write_id, part) for part in parts]
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
            self.options.queue or "of each row", done, self.write_id,
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
    sinks, encoding = Sinks(options, write_id, batch), Encoding(options.codec, options.max_payload)
    seen: Counter[tuple[str, str]] = Counter()
    for each in batches:
        for queue, part, section in sections(each, options.queue):
            if queue == options.error_queue != "":
                raise ConfigError(f"rows for {queue} would be mixed with bad ones: name another errorQueue")
            rows, wrong = encoded(section, encoding)
            if not queue:
                rows, wrong = Rows([], "b", []), [Bad(at, "queue is null") for at in range(section.num_rows)]
            if wrong and not options.error_queue:
                raise ConfigError(
                    f"row {seen[queue, part] + wrong[0].row:,} of partition {part} is no valid message: "
                    f"{wrong[0].reason}; fix it, or name an errorQueue for such rows"
                )
            if len(rows):
                sinks.of(queue, part).store(rows)
            if wrong:
                bad = described(section, wrong, write_id, part, seen[queue, part])
                sinks.of(options.error_queue, part, queue).store(bad)
            seen[queue, part] += section.num_rows
    return sinks.finish()


def sections(batch: pa.RecordBatch, queue: str) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Cut *batch* by the columns `queue` and `part`: the queue, the part, and their rows in order without the two.

    Without these columns all rows are for *queue*, and the part is the number of the task's partition.
    """
    context = TaskContext.get()
    part, rows = str(context.partitionId() if context else 0), batch
    named = [each for each in ("queue", "part") if each in batch.schema.names]
    if not named or not batch.num_rows:
        yield queue, part, rows.drop_columns(named)
        return
    codes = np.zeros(batch.num_rows, np.int64)
    words = {each: batch.column(each).dictionary_encode(null_encoding="encode") for each in named}
    for each in words.values():
        codes = codes * len(each.dictionary) + each.indices.to_numpy(zero_copy_only=False)
    rows = rows.drop_columns(named)
    _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
    for group in np.argsort(firsts):
        first = int(firsts[group])
        found = {each: batch.column(each)[first].as_py() for each in named}
        if "part" in found and (found["part"] is None or len(found["part"].encode()) > LONGEST):
            raise ConfigError(
                f"column part is null or longer than {LONGEST} bytes: it names the rows' part of the data"
            )
        picked = rows if len(firsts) == 1 else rows.take(pa.array(np.flatnonzero(groups == group)))
        yield found.get("queue", queue) or "", found.get("part", part), picked


class Sinks:
    """The sinks of one task: one for each part of each queue, and of each queue's part in the error queue."""

    def __init__(self, options: Writing, write_id: str, batch: int) -> None:
        self._options, self._write_id, self._batch = options, write_id, batch
        self._sinks: dict[tuple[str, str], Sink] = {}
        self._states: dict[str, QueueState] = {}

    def of(self, queue: str, part: str, diverted_from: str | None = None) -> Sink:
        """Return the sink of *part* in *queue*, or for what is diverted there from another queue."""
        name = part if not diverted_from or diverted_from == self._options.queue else f"{part} of {diverted_from}"
        found = self._sinks.get((queue, name))
        if found is None:
            if queue not in self._states:
                self._states[queue] = queue_of(self._options, queue, create=self._options.create)
            found = Sink(
                self._options,
                self._states[queue],
                BulkOffset(self._write_id, name, self._batch, self._options.remember_for),
            )
            self._sinks[queue, name] = found
        return found

    def finish(self) -> Wrote:
        """Called after the last row."""
        for each in self._sinks.values():
            each.finish()
        bad = {name: each for name, each in self._sinks.items() if name[0] == self._options.error_queue}
        diverted = sum(each.rows for each in bad.values())
        return Wrote(sum(each.rows for each in self._sinks.values()) - diverted, diverted, tuple(self._sinks))


class Sink:
    """Stores the rows of one part in one queue."""

    def __init__(self, options: Writing, state: QueueState, offset: BulkOffset) -> None:
        self._client, self._state, self._offset = client_of(options), state, offset
        self._pace = Pace(options.chunk_size, options.in_flight, options.max_backlog, options.full_timeout)
        self.rows = 0

    def store(self, rows: Rows) -> None:
        """Store these rows, which come after those of the earlier calls."""
        self._client.run(store_rows(self._state, self._offset, self.rows, rows, self._pace))
        self.rows += len(rows)

    def finish(self) -> None:
        """Called after the last row."""
        finish(self._offset, self.rows)


def described(batch: pa.RecordBatch, wrong: list[Bad], write_id: str, partition: str, first: int) -> Rows:
    """The messages for the error queue: the reason, the place of the row, its shard key and its payload."""
    picked = batch.take(pa.array([each.row for each in wrong]))
    names = batch.schema.names
    keys = picked.column(names.index("shard_key")).to_pylist()
    payloads = picked.column(names.index("payload")).to_pylist()
    bodies, named = [], int(partition) if partition.isdecimal() else partition
    for each, key, payload in zip(wrong, keys, payloads, strict=True):
        problem = {
            "error": each.reason, "write_id": write_id, "partition": named, "row": first + each.row,
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
