"""Where a task stores its rows: a sink for each part of each queue, and of each queue's part in the error queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import WriterCommitMessage

from shardq.errors import ConfigError
from shardq.model.partitions import is_parted
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.write.outgoing import EXISTING
from shardq.partitions.parts import Parts, all_of
from shardq.spark.connection import client_of, partitions_of, queue_of, whole_queue_of
from shardq.spark.ops.bulk import BulkOffset, finish, store_rows
from shardq.spark.ops.checksum import Checksum
from shardq.spark.ops.dealing import check_there, dealing
from shardq.spark.ops.replacing import store_despite
from shardq.spark.ops.rows import RowPace, Rows
from shardq.spark.ops.unnumbered import store_unnumbered
from shardq.spark.options import Writing


class StoredRows(NamedTuple):
    """How many rows of a part a task stored in a queue, or found stored there; in a partition, which its tag names."""

    queue: str
    part: str
    rows: int


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """The rows that one task stored, and their write: its id, the number of its batch, and when it began."""

    write_id: str
    batch: int
    began: int
    stored: tuple[StoredRows, ...]


class Sinks:
    """The sinks of one task, for rows of `write_id`. `began` is when the write began, in ms of the server's clock."""

    def __init__(self, options: Writing, write_id: str, batch: int, began: int) -> None:
        self._options, self.write_id, self._batch, self._began = options, write_id, batch, began
        self._sinks: dict[tuple[str, str], Sink | DealingSink] = {}
        self._states: dict[str, QueueState] = {}

    def open(self, queues: Iterable[str]) -> None:
        """Look up these queues, before anything is written to one of them. QueueMissing, ConfigError."""
        for each in queues:
            if each not in self._states:
                look_up = whole_queue_of if each == self._options.error_queue else queue_of
                self._states[each] = look_up(self._options, each, create=self._options.create)

    def of(self, queue: str, part: str, diverted_from: str | None = None) -> Sink | DealingSink:
        """Return the sink of *part* in *queue*, or for what is diverted there from another queue."""
        name = part if not diverted_from or diverted_from == self._options.queue else f"{part} of {diverted_from}"
        found = self._sinks.get((queue, name))
        if found is None:
            self.open([queue])
            offset = BulkOffset(self.write_id, name, self._batch, self._options.remember_for, self._began)
            state = self._states[queue]
            kind = DealingSink if is_parted(state.config.partitions) else Sink
            found = self._sinks[queue, name] = kind(self._options, state, offset)
        return found

    def finish(self) -> Wrote:
        """Called after the last row."""
        for each in self._sinks.values():
            each.finish()
        stored = tuple(each for sink in self._sinks.values() for each in sink.stored)
        return Wrote(self.write_id, self._batch, self._began, stored)


class Sink:
    """Stores the rows of one part in one queue."""

    def __init__(self, options: Writing, state: QueueState, offset: BulkOffset, among: int = 1) -> None:
        self._client, self._state, self._offset = client_of(options), state, offset
        max_backlog = -(-options.max_backlog // among)
        self._pace = RowPace(options.chunk_size, options.in_flight, max_backlog, options.full_timeout)
        self._is_numbered, self._on_conflict = options.idempotence == "row", options.on_conflict
        self.rows = 0

    def store(self, rows: Rows) -> None:
        """Store these rows, which come after those of the earlier calls."""
        self._client.run(self.op(rows))
        self.rows += len(rows)

    def op(self, rows: Rows) -> Op[None]:
        """The operation that stores these rows."""
        if self._is_numbered:
            return store_rows(self._state, self._offset, self.rows, rows, self._pace)
        if self._on_conflict != EXISTING:
            return store_despite(self._state, rows, self._pace, self._on_conflict)
        return store_unnumbered(self._state, rows, self._pace)

    @property
    def stored(self) -> list[StoredRows]:
        """The rows that are stored by now."""
        return [StoredRows(self._state.keys.tag, self._offset.partition, self.rows)]

    def finish(self) -> None:
        """Called after the last row."""
        finish(self._offset, self.rows)


class DealingSink:
    """Stores the rows of one part in a queue with partitions, each in the home of its shard key.

    Where rows are numbered, the homes are those that the first try of the part had, and so are the numbers in them.
    """

    def __init__(self, options: Writing, head: QueueState, offset: BulkOffset) -> None:
        if options.create:  # this process may have looked at it long ago
            head = queue_of(options, head.keys.name)
        self._options, self._head, self._offset = options, head, offset
        self._parts: Parts = head.parts
        self._states, self._dealt = partitions_of(head), None
        self._written = self._parts.map.written
        if options.idempotence == "row":
            self._dealt = client_of(options).run(dealing(head, offset, self._written, RowPace()))
            self._written = self._dealt.written if self._dealt else 1
        self._sinks: dict[int, Sink] = {}

    def store(self, rows: Rows) -> None:
        """Store these rows in their homes, in all of them at once. ConfigError if one of them has a key."""
        if any(each.rpartition("|")[2] for each in rows.options):
            raise ConfigError(
                f"queue {self._head.keys.name!r} has partitions: a dedup_key or unique_key may be known in a former "
                "home, where Spark does not look; leave the column out (idempotence=row), or write by shardq's client"
            )
        homes: dict[int, list[int]] = {}
        for at, key in enumerate(rows.shard_keys):
            homes.setdefault(self._parts.number_of(key, self._written), []).append(at)
        some = {self._sink(number): rows.only(every) for number, every in homes.items()}
        all_of(client_of(self._options).run(run_together([sink.op(each) for sink, each in some.items()])))
        for sink, each in some.items():
            sink.rows += len(each)

    def _sink(self, number: int) -> Sink:
        if number not in self._sinks:
            offset, states = self._offset, self._states
            if 0 < number < len(states):
                queue_of(self._options, states[number].keys.tag)
            if self._dealt:
                check_there(offset, self._dealt, states, number)
                offset = replace(offset, partition=f"{offset.partition}@", stored=0, mark="", own=Checksum())
            self._sinks[number] = Sink(self._options, states[number], offset, self._written)
        return self._sinks[number]

    @property
    def stored(self) -> list[StoredRows]:
        """The rows that are stored by now in each partition; and the mark of how they were dealt, which has no rows."""
        found = [each for sink in self._sinks.values() for each in sink.stored]
        return [*found, StoredRows(self._head.keys.tag, self._offset.partition, 0)] if self._dealt else found

    def finish(self) -> None:
        """Called after the last row."""
        for each in self._sinks.values():
            each.finish()
