"""`spark.readStream.format("shardq")`: a stream of the journal or the dead letters of queues.

An offset says for each queue how far the stream was read: the number of an event, or the entry id of a dead letter. The
rows between two offsets never change, so a micro-batch can be read again, and lost rows are noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from shardq.spark.connection import client_of, seen_queue
from shardq.spark.options import Reading
from shardq.spark.parts import Part, default_parts
from shardq.spark.reader import TRACKS, read_part, without_gc

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. It lives on the driver; copies of it read on the executors."""

    def __init__(self, options: Reading, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        self.target: Offset | None = None

    def initialOffset(self) -> Offset:
        """Where a new query starts: `startingOffsets`, the latest by default."""
        options = self.options
        if options.starting_offsets == "earliest":
            return {name: self._track(name).first() for name in options.queues}
        if options.starting_offsets in ("", "latest"):
            return self._last()
        return {name: self._track(name).given("startingOffsets") for name in options.queues}

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far the next micro-batch goes."""
        end = dict(self.target or self._last())
        tracks = {name: self._track(name) for name in end}
        begin = self._begin(start or {}, end)
        for name, track in tracks.items():
            track.check(begin[name], end[name])
        if not isinstance(limit, ReadMaxRows):
            return end
        lags = {name: track.lag(begin[name], end[name]) for name, track in tracks.items()}
        total = max(1, sum(lags.values()))
        shares = {name: max(1, limit.max_rows * lag // total) for name, lag in lags.items()}
        return {name: track.on(begin[name], end[name], shares[name]) for name, track in tracks.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`."""
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        """The newest offset, without a limit."""
        return self._last()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the newest offset, at which the query shall end."""
        self.target = self._last()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets, in parts."""
        most = self.options.partitions or default_parts()
        begin = self._begin(start, end)
        return [part for name in end for part in self._track(name).parts(begin[name], end[name], most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; runs in a task."""
        if not isinstance(partition, Part):
            return iter(())
        return without_gc(read_part(self.options, self.schema, partition))

    def _begin(self, start: Offset, end: Offset) -> Offset:
        """Where each queue's part begins; for a queue that is new to the query, at its oldest row."""
        return {name: start[name] if name in start else self._track(name).first() for name in end}

    def _last(self) -> Offset:
        return {name: self._track(name).last() for name in self.options.queues}

    def _track(self, name: str) -> Any:
        return TRACKS[self.options.table](client_of(self.options), seen_queue(self.options, name), self.options)
