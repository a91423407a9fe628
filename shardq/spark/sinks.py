"""Where a task stores its rows: a sink for each part of each queue, and of each queue's part in the error queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import WriterCommitMessage

from shardq.ops.queue.state import QueueState
from shardq.spark.connection import client_of, whole_queue_of
from shardq.spark.ops.bulk import BulkOffset, finish, store_rows
from shardq.spark.ops.rows import Pace, Rows
from shardq.spark.ops.unnumbered import store_unnumbered
from shardq.spark.options import Writing


class Stored(NamedTuple):
    """How many rows of a part a task stored in a queue, or found stored there."""

    queue: str
    part: str
    rows: int


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """What one task stored, and of which write: its id, the number of its batch, and when it began."""

    write_id: str
    batch: int
    began: int
    stored: tuple[Stored, ...]


class Sinks:
    """The sinks of one task, for rows of `write_id`. `began` is when the write began, in ms of the server's clock."""

    def __init__(self, options: Writing, write_id: str, batch: int, began: int) -> None:
        self._options, self.write_id, self._batch, self._began = options, write_id, batch, began
        self._sinks: dict[tuple[str, str], Sink] = {}
        self._states: dict[str, QueueState] = {}

    def open(self, queues: Iterable[str]) -> None:
        """Look up these queues, before anything is written to one of them. QueueMissing, ConfigError."""
        for each in queues:
            if each not in self._states:
                self._states[each] = whole_queue_of(self._options, each, create=self._options.create)

    def of(self, queue: str, part: str, diverted_from: str | None = None) -> Sink:
        """Return the sink of *part* in *queue*, or for what is diverted there from another queue."""
        name = part if not diverted_from or diverted_from == self._options.queue else f"{part} of {diverted_from}"
        found = self._sinks.get((queue, name))
        if found is None:
            self.open([queue])
            offset = BulkOffset(self.write_id, name, self._batch, self._options.remember_for, self._began)
            found = self._sinks[queue, name] = Sink(self._options, self._states[queue], offset)
        return found

    def finish(self) -> Wrote:
        """Called after the last row."""
        for each in self._sinks.values():
            each.finish()
        stored = tuple(Stored(*name, each.rows) for name, each in self._sinks.items())
        return Wrote(self.write_id, self._batch, self._began, stored)


class Sink:
    """Stores the rows of one part in one queue."""

    def __init__(self, options: Writing, state: QueueState, offset: BulkOffset) -> None:
        self._client, self._state, self._offset = client_of(options), state, offset
        self._pace = Pace(options.chunk_size, options.in_flight, options.max_backlog, options.full_timeout)
        self._is_numbered = options.idempotence == "row"
        self.rows = 0

    def store(self, rows: Rows) -> None:
        """Store these rows, which come after those of the earlier calls."""
        if self._is_numbered:
            self._client.run(store_rows(self._state, self._offset, self.rows, rows, self._pace))
        else:
            self._client.run(store_unnumbered(self._state, rows, self._pace))
        self.rows += len(rows)

    def finish(self) -> None:
        """Called after the last row."""
        finish(self._offset, self.rows)
