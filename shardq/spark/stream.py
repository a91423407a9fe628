"""`spark.readStream.format("shardq")`: a stream of the journal or the dead letters of queues.

An offset has a *mark* for each queue: `{"from": 40, "to": 60, "time": 1763711999000}`. The micro-batch that ends there
has the rows after the point "from" up to the point "to", the number of an event or the entry id of a dead letter. They
never change, so a micro-batch can be read again, and lost rows are noticed. By the "time" of the event "to", in ms, we
notice that Redis was rolled back. A queue that is not read any more keeps its mark: it may come back. Offsets of older
versions have points instead of marks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from shardq.spark.connection import client_of, seen_queue
from shardq.spark.options import Reading, place_of
from shardq.spark.parts import Part, default_parts
from shardq.spark.reader import TRACKS, read_part, without_gc
from shardq.spark.subscription import Subscription

Offset = dict[str, Any]
UNLIMITED = 2**53


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. It lives on the driver; copies of it read on the executors."""

    def __init__(self, options: Reading, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        self.subscription = Subscription(options)
        self.target: Offset | None = None
        self.went_on = time.monotonic()

    def initialOffset(self) -> Offset:
        """Where a new query starts: `startingOffsets`, the latest by default."""
        given = self.options.starting_offsets or "latest"
        if given == "latest":
            return self._last()
        if given == "earliest":
            return {name: self._track(name).first() for name in self.subscription.queues()}
        return self.options.points("startingOffsets") | {name: self._given(name) for name in self.subscription.queues()}

    def _given(self, name: str) -> Any:
        mark, point = self.options.point("startingOffsets", name), self._track(name).given("startingOffsets")
        return {"to": point, "time": time_of(mark)} if time_of(mark) else point

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far the next micro-batch goes."""
        start = start or {}
        last = self.target or self._last()
        tracks = {name: self._track(name) for name in last}
        begin = {name: self._begin(track, start.get(name), last[name]) for name, track in tracks.items()}
        if self._waits(tracks, begin, last):
            return start
        end = dict(last)
        if isinstance(limit, ReadMaxRows):
            lags = {name: track.lag(begin[name], last[name], limit.max_rows) for name, track in tracks.items()}
            parts = shares(lags, limit.max_rows)
            end = {name: track.on(begin[name], last[name], parts[name]) for name, track in tracks.items()}
        found = dict(start)
        for name, track in tracks.items():
            if name not in start or not begin[name] == end[name] == place_of(start[name]):
                found[name] = {"from": begin[name], "to": end[name], "time": track.time(end[name])}
        return found

    def _begin(self, track: Any, mark: Any, last: Any) -> Any:
        """Where a queue's part begins; for a queue that is new to the query, at its oldest row."""
        return track.first() if mark is None else track.begin(place_of(mark), time_of(mark), last)

    def _waits(self, tracks: Mapping[str, Any], begin: Offset, last: Offset) -> bool:
        """Whether the next micro-batch shall wait for `minOffsetsPerTrigger`; never longer than `maxTriggerDelay`."""
        least = self.options.min_offsets_per_trigger
        if least and self.target is None and time.monotonic() - self.went_on < self.options.max_trigger_delay:
            lags: Iterator[int] = (track.lag(begin[name], last[name], least) for name, track in tracks.items())
            return sum(lags) < least
        self.went_on = time.monotonic()
        return False

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`."""
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        """The newest offset, without a limit; `shardq.spark.lag` compares it with how far the query is."""
        return {name: {"to": point, "time": self._track(name).time(point)} for name, point in self._last().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the newest offset, at which the query shall end."""
        self.target = self._last()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets, in parts."""
        most = self.options.partitions or default_parts()
        found: list[InputPartition] = []
        for name, mark in end.items():
            if name not in start or start[name] != mark:
                track = self._track(name)
                found += track.parts(self._from(track, start.get(name), mark), place_of(mark), most)
        return found

    def _from(self, track: Any, before: Any, mark: Any) -> Any:
        """Where the part up to *mark* begins. The mark says it: where a query starts may have moved meanwhile."""
        if isinstance(mark, dict) and "from" in mark:
            return mark["from"]
        return track.first() if before is None else place_of(before)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; runs in a task."""
        if not isinstance(partition, Part):
            return iter(())
        return without_gc(read_part(self.options, self.schema, partition))

    def _last(self) -> Offset:
        return {name: self._track(name).last() for name in self.subscription.queues()}

    def _track(self, name: str) -> Any:
        return TRACKS[self.options.table](client_of(self.options), seen_queue(self.options, name), self.options)


def time_of(mark: Any) -> int | None:
    """The time of a mark's last row, in ms; None if it is not known."""
    return mark.get("time") if isinstance(mark, dict) else None


def shares(lags: Mapping[str, int], most: int) -> dict[str, int]:
    """How many rows of each queue a micro-batch of about *most* rows has: max-min fair, and one at least.

    A queue with a small lag gets all of it, and those with large ones the same number each. In proportion to the lags,
    a flood would keep the others behind for as long as it lasts.
    """
    left, found = most, {}
    for at, name in enumerate(sorted(lags, key=lambda name: (lags[name], name))):
        found[name] = min(lags[name], max(1, left // (len(lags) - at)))
        left = max(0, left - found[name])
    return found
