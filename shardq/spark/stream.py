"""`spark.readStream.format("shardq")`: a stream of the journal or the dead letters of queues.

An offset has a *mark* for each queue: `{"from": 40, "to": 60, "time": 1763711999000, "id": "1763711000000-cQ3x"}`. The
micro-batch that ends there has the rows after the point "from" up to the point "to", the number of an event or the
entry id of a dead letter. They never change, so a micro-batch can be read again, and lost rows are noticed. By the
"time" of the event "to", in ms, we notice that Redis was rolled back. By the "id" of the queue we notice that it was
deleted and recreated: then it is read from its beginning on. A queue that is not read any more, or that is gone, keeps
its mark: it may come back. Offsets of older versions have marks without ids, or points instead of marks.

Each partition of a queue is read as a queue, and has a mark of its own by its tag: "jobs" is the head, "jobs#2.a"
another. So one that joins is read from its beginning, and one that leaves was read to its end.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from shardq.spark.connection import client_of, partitions_of, queue_in, seen_queue
from shardq.spark.lives import Gone, is_made_anew, life_of
from shardq.spark.options import Reading, place_of
from shardq.spark.parts import SparkPart, share
from shardq.spark.subscription import Subscription
from shardq.spark.tracks import TRACKS

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("shardq")
Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. It lives on the driver; copies of it read on the executors."""

    def __init__(self, options: Reading, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        self.subscription = Subscription(options)
        self.gone = Gone("there is no queue %r any more: its part of the stream ends there")
        self.is_new = False
        self.target: Offset | None = None
        self.went_on = time.monotonic()

    def initialOffset(self) -> Offset:
        """Where a new query starts: `startingOffsets`, the latest by default."""
        self.is_new = True
        given, tracks = self.options.starting_offsets or "latest", self._all_tracks()
        if given == "latest":
            return _last(tracks)
        if given == "earliest":
            return {name: {"to": track.first(), "id": track.life} for name, track in tracks.items()}
        found = {name: self._given(name, track) for name, track in tracks.items()}
        return self.options.points("startingOffsets") | found

    def _given(self, name: str, track: Any) -> Any:
        mark, point = self.options.point("startingOffsets", name), track.given("startingOffsets")
        given = {"to": point, "time": time_of(mark), "id": life_of(mark)}
        return {key: value for key, value in given.items() if value is not None}

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far the next micro-batch goes. QueueMissing, ConfigError if a new query names queues that are not there.

        For a query that has read them once, those that are gone are no error.
        """
        start = start or {}
        if self.is_new:
            self.subscription.check()
            self.is_new = False
        tracks = self._tracks(self.target) if self.target else self._all_tracks()
        marks = self.target or _last(tracks)
        tracks = {name: track for name, track in tracks.items() if track.life == marks[name]["id"]}
        last = {name: marks[name]["to"] for name in tracks}
        begin = {name: self._begin(name, track, start.get(name), last[name]) for name, track in tracks.items()}
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
                time = track.time(end[name])
                found[name] = {"from": begin[name], "to": end[name], "time": time, "id": track.life}
        return found

    def _begin(self, name: str, track: Any, mark: Any, last: Any) -> Any:
        """Where a queue's part begins; for a queue that is new to the query, at its oldest row."""
        if mark is None:
            return track.first()
        if not is_made_anew(track, mark):
            return track.begin(place_of(mark), time_of(mark), last)
        if place_of(mark) != track.anew():
            log.warning("queue %r was deleted and created again: the stream continues at its beginning", name)
        return track.anew()

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
        tracks = self._all_tracks()
        return {name: mark | {"time": tracks[name].time(mark["to"])} for name, mark in _last(tracks).items()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the newest offset, at which the query shall end."""
        self.target = _last(self._all_tracks())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets, in parts. Rows of a deleted queue are in none."""
        self.is_new = False  # though it may be its first micro-batch: that was planned when all was there
        found: list[InputPartition] = []
        changed = [name for name, mark in end.items() if name not in start or start[name] != mark]
        of_queue = Counter(map(queue_in, changed))
        for name, track in self._tracks(changed).items():
            if is_made_anew(track, end[name]):
                log.warning("queue %r was deleted before all of it was read, and created again", name)
            else:
                most = share(self.options.partitions, of_queue[queue_in(name)])
                found += track.parts(self._from(track, start.get(name), end[name]), place_of(end[name]), most)
        return found

    def _from(self, track: Any, before: Any, mark: Any) -> Any:
        """Where the part up to *mark* begins. The mark says it: where a query starts may have moved meanwhile."""
        if isinstance(mark, dict) and "from" in mark:
            return mark["from"]
        return track.first() if before is None else place_of(before)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; runs in a task."""
        from shardq.spark.reader import read_part, without_gc  # the Python that plans a stream does not need it

        if isinstance(partition, SparkPart):
            with self.gone.left_out(partition.queue):
                yield from without_gc(read_part(self.options, self.schema, partition))

    def _all_tracks(self) -> dict[str, Any]:
        """The tracks of all partitions of all queues that are read, as they are now."""
        return self._tracks(self.subscription.queues(), with_partitions=True)

    def _tracks(self, names: Iterable[str], *, with_partitions: bool = False) -> dict[str, Any]:
        """The tracks of those queues and partitions that are there. The others are named in the log."""
        kind, client, found = TRACKS[self.options.table], client_of(self.options), {}
        left = deque(names)
        while left:
            name = left.popleft()
            with self.gone.left_out(name):
                state = seen_queue(self.options, name)
                found[name] = kind(client, state, self.options)
                if with_partitions and not state.number:
                    left.extend(each.keys.tag for each in partitions_of(state)[1:])
        return found


def _last(tracks: Mapping[str, Any]) -> Offset:
    """The marks of the newest rows."""
    return {name: {"to": track.last(), "id": track.life} for name, track in tracks.items()}


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
