"""The writers of `df.write` and `df.writeStream`, which store each row of a DataFrame in a queue once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shardq.extras import extra

with extra("spark"):
    import numpy as np
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from shardq.errors import ConfigError
from shardq.spark.columns import Bad, Encoding, encoded
from shardq.spark.committing import commit, has_lost_offsets
from shardq.spark.ops.bulk import LOST_OFFSETS
from shardq.spark.ops.rows import Rows
from shardq.spark.options import Writing
from shardq.spark.sinks import Sinks, Wrote
from shardq.spark.versions import ArrowStreamWriter

log = logging.getLogger("shardq")
MAX_SHOWN = 1024  # how much of a bad row's shard key its message in the error queue has
MAX_OPTION = 200  # bytes of the name of a part
MAX_BATCH_BYTES = 1024 * 1024  # bytes of a bad row's message in the error queue, at most


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `df.write`. It is copied to the tasks, with the id under which each row is stored once.

    `began` is when the write began, in ms of the server's clock.
    """

    def __init__(self, options: Writing, write_id: str, began: int = 0) -> None:
        self.options = options
        self.write_id = write_id
        self.began = began

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """Store the rows of one partition; runs in a task."""
        sinks = Sinks(self.options, self.write_id, max(0, self.options.batch_id), self.began)
        return write_partition(sinks, self.options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called when all partitions are stored. BackendError if Redis has lost rows meanwhile.

        If the id was made up here, nobody can repeat the write, so its bulk offsets are marked as complete.
        """
        commit(self.options, messages, last=not self.options.write_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called when a partition failed. Rows that were stored stay, and may have been delivered already."""
        done = sum(1 for each in messages if isinstance(each, Wrote))
        log.error(
            "the write to queue %r failed after %d partitions; their messages stay. %s",
            self.options.queue or "of each row", done, self._advice(messages),
        )  # fmt: skip

    def _advice(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        if self.options.idempotence == "row":
            if has_lost_offsets(self.options, self.began, messages):
                return f"{LOST_OFFSETS} of writeId={self.write_id}: to write again under it would store rows twice"
            return f"Write again with writeId={self.write_id} and the same rows: only what is missing will be stored"
        if self.options.idempotence == "key":
            return "Write again: rows with a dedup_key that the queue remembers are not stored again"
        return "A new run stores them again, since idempotence is none"


class StreamWriter(ArrowStreamWriter):
    """The writer of one streaming query. Its id and the number of the micro-batch tell which rows are stored.

    Spark makes one for each micro-batch. `began` is when that began, in ms of the server's clock.
    """

    def __init__(self, options: Writing, began: int = 0) -> None:
        self.options = options
        self.began = began

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        """Store the rows of one partition of a micro-batch; runs in a task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch is None:
            raise ConfigError("this Spark does not tell tasks the query and micro-batch: use foreachBatch with writeId")
        sinks = Sinks(self.options, self.options.write_id or query, int(batch), self.began)
        return write_partition(sinks, self.options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Called when a micro-batch is stored. BackendError if Redis has lost rows of it meanwhile."""
        commit(self.options, messages, last=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Called when a micro-batch failed. Spark replays it, and rows that are stored are not stored again."""


def write_partition(sinks: Sinks, options: Writing, batches: Iterator[pa.RecordBatch]) -> Wrote:
    """Store the rows of one partition that are not stored yet; invalid rows go to the error queue."""
    encoding = Encoding(options.codec, options.max_payload, options.idempotence == "key", options.on_conflict)
    seen: Counter[tuple[str, str]] = Counter()
    for each in batches:
        found = list(sections(each, options.queue))
        queues = {queue: None for queue, _, _ in found if queue}
        if options.error_queue in queues:
            raise ConfigError(f"rows for {options.error_queue} would be mixed with bad ones: name another errorQueue")
        sinks.open(queues)
        for queue, part, section in found:
            _store(sinks, options, encoding, (queue, part, seen[queue, part]), section)
            seen[queue, part] += section.num_rows
    return sinks.finish()


def _store(
    sinks: Sinks, options: Writing, encoding: Encoding, where: tuple[str, str, int], section: pa.RecordBatch
) -> None:
    """Store a *section* of a page: *where* is its queue, its part, and the number of its first row there."""
    queue, part, first = where
    rows, wrong = encoded(section, encoding)
    if not queue:
        rows, wrong = Rows([], "b", []), [Bad(at, "queue is null") for at in range(section.num_rows)]
    if wrong and not options.error_queue:
        raise ConfigError(
            f"{_named(_place(section, wrong[0].row, part, first))} is no valid message: "
            f"{wrong[0].reason}; fix it, or name an errorQueue for such rows"
        )
    if len(rows):
        sinks.of(queue, part).store(rows)
    if wrong:
        sinks.of(options.error_queue, part, queue).store(described(section, wrong, sinks.write_id, part, first))


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
        if "part" in found and (found["part"] is None or len(found["part"].encode()) > MAX_OPTION):
            raise ConfigError(
                f"column part is null or longer than {MAX_OPTION} bytes: it names the rows' part of the data"
            )
        picked = rows if len(firsts) == 1 else rows.take(pa.array(np.flatnonzero(groups == group)))
        yield found.get("queue", queue) or "", found.get("part", part), picked


def _place(batch: pa.RecordBatch, row: int, part: str, first: int) -> dict[str, Any]:
    """Where a *row* of a section comes from."""
    place: dict[str, Any] = {"partition": int(part) if part.isdecimal() else part, "row": first + row}
    if "source" in batch.schema.names:
        source = batch.column("source")[row].as_py()
        line, number = source["line"], first + row if source["row"] is None else source["row"]
        place |= {"row": number, "file": source["file"], "line": None if line is None else line + number}
    return place


def _named(place: Mapping[str, Any]) -> str:
    if place.get("line") is not None:
        return f"line {place['line']:,} of {place['file']}"
    return f"row {place['row']:,} of partition {place['partition']}" + (
        f" of {place['file']}" if "file" in place else ""
    )


def described(batch: pa.RecordBatch, wrong: list[Bad], write_id: str, partition: str, first: int) -> Rows:
    """The messages for the error queue: the reason, the place of the row, its shard key and its payload."""
    picked = batch.take(pa.array([each.row for each in wrong]))
    keys, payloads = picked.column("shard_key").to_pylist(), picked.column("payload").to_pylist()
    bodies = []
    for each, key, payload in zip(wrong, keys, payloads, strict=True):
        problem = {
            "error": each.reason, "write_id": write_id, **_place(batch, each.row, partition, first),
            "shard_key": None if key is None else key[:MAX_SHOWN], "payload": payload,
        }  # fmt: skip
        bodies.append(_packed(problem))
    return Rows([write_id] * len(bodies), "m", bodies)


def _packed(problem: dict[str, Any]) -> bytes:
    """*problem* as MessagePack, without the payload if that is too large or cannot be encoded."""
    try:
        body = msgspec.msgpack.encode(problem)
    except (TypeError, ValueError, OverflowError, RecursionError):
        body = b""
    if body and len(body) <= MAX_BATCH_BYTES:
        return body
    return msgspec.msgpack.encode(problem | {"payload": None})
