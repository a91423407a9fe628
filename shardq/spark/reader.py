"""`spark.read.format("shardq")`: a queue's messages, dead letters and journal as tables. Reading changes nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, InputPartition

from shardq.ops.queue.state import QueueState
from shardq.spark import dead, events, sweep
from shardq.spark.connection import client_of, same_seen_queue, seen_partitions
from shardq.spark.entries import placed
from shardq.spark.options import Reading
from shardq.spark.pages import PAGE_BYTES
from shardq.spark.parsing import parsed
from shardq.spark.parts import Bundle, SparkPart, bundled, share
from shardq.spark.subscription import Subscription
from shardq.spark.tracks import TRACKS

JOINED_ROWS = 1000
"""Batches of fewer rows are joined with others."""
READS = {"live": sweep.read_live, "dead": dead.read_dead, "journal": events.read_events}


class BatchReader(DataSourceReader):
    """The reader of one `load()`. It plans once, so a DataFrame that is used twice reads the same ranges twice."""

    def __init__(self, options: Reading, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The parts to read: about two for each core, or as many as the option `partitions` says.

        Each is of one partition of a queue, or of several that are small.
        """
        found: list[SparkPart] = []
        for name in Subscription(self.options).queues():
            states = seen_partitions(self.options, name)
            for state in states:
                found += self._parts(state, share(self.options.partitions, len(states)))
        return bundled(found, share(self.options.partitions))

    def _parts(self, state: QueueState, most: int) -> list[SparkPart]:
        client = client_of(self.options)
        if self.options.table == "live":
            return sweep.live_parts(client, state, self.options, most)
        track = TRACKS[self.options.table](client, state, self.options)
        start, end = self.options.starting_offsets, self.options.ending_offsets
        first = track.first() if start in ("", "earliest") else track.given("startingOffsets")
        last = track.last() if end in ("", "latest") else track.given("endingOffsets")
        return track.parts(first, last, most)  # type: ignore[no-any-return]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that the part has now; runs in a task."""
        if isinstance(partition, Bundle):
            batches = (read_part(self.options, self.schema, part) for part in partition.parts)
            return without_gc(joined(chain.from_iterable(batches)))
        if not isinstance(partition, SparkPart):  # a partition of Spark's own, if there were no parts
            return iter(())
        return without_gc(read_part(self.options, self.schema, partition))


def read_part(options: Reading, schema: pa.Schema, part: SparkPart) -> Iterator[pa.RecordBatch]:
    """The batches of one part. QueueMissing if its queue was deleted meanwhile.

    CodecError for a malformed payload if `parseMode` is FAILFAST.
    """
    return parsed(schema, options, lambda columns: _read(options, columns, part))


def _read(options: Reading, schema: pa.Schema, part: SparkPart) -> Iterator[pa.RecordBatch]:
    client, state = client_of(options), same_seen_queue(options, part.queue, part.life)
    return placed(READS[options.table](client, state, options, schema, part), state.number)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """*batches*, where small ones are joined: each costs Spark some time, and each queue has one at least."""
    few: list[pa.RecordBatch] = []
    rows = size = 0
    for each in batches:
        few.append(each)
        rows, size = rows + each.num_rows, size + each.nbytes
        if rows >= JOINED_ROWS or size >= PAGE_BYTES:
            yield from _in_one(few)
            few, rows, size = [], 0, 0
    if few:
        yield from _in_one(few)


def _in_one(few: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return few if len(few) == 1 else pa.Table.from_batches(few).combine_chunks().to_batches()


def without_gc(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """*batches*, with the garbage collector off: it would take longer to walk through replies than to read them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield from batches
    finally:
        if was:
            gc.enable()
