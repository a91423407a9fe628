"""`spark.readStream` with mode=consume: a streaming query that leases messages, and acks them when they are done.

The offset after a micro-batch says how many messages it has of each queue: `{"hold": "9f86d081884c7d65", "batch": 3,
"rows": {"jobs": 120}, "ids": {"jobs": "1763711000000-cQ3x"}, "ackOn": "commit", "done": 2, "most": 0, "half": 60}`.
Each partition of a queue counts as one, named by its tag, such as "jobs#2.a": it has leases and a record of its own.
Their ids are in a record in Redis, which is written before Spark writes the offset down. So a query that was killed
finds in its checkpoint what it held. By the id of the queue it knows when that was deleted: then nothing is held of it
any more. Offsets of older versions have no ids.

A micro-batch whose job fails is handed out once more as it was, when the query is started again. Then its messages are
given back, and the query continues with smaller micro-batches: "done" of them have succeeded before this one, which may
have "most" messages (0: any number), and if it fails the next one may have "half".

Spark asks for the offset after a micro-batch only when that micro-batch is committed. It calls `commit` one micro-batch
later than that, and for the last one never.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from shardq.errors import QueueMissing
from shardq.model import QueueStats
from shardq.ops.inspect.stats import numbers
from shardq.ops.queue.together import run_together
from shardq.partitions.parts import all_of
from shardq.spark.connection import client_of, partitions_of, queue_in, queue_of, state_of
from shardq.spark.consume.batches import Batches
from shardq.spark.consume.failures import suspects
from shardq.spark.consume.hold import End, Hold
from shardq.spark.consume.holding import Room
from shardq.spark.consume.lease import ReaderLease, packed, unpacked
from shardq.spark.lives import Gone, same_queue
from shardq.spark.options import Consuming
from shardq.spark.parts import share
from shardq.spark.stream import shares

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]
WAIT_SECONDS = 0.5
"""Seconds to wait for a first message. So long it may take until a query is stopped."""
ENDED_TWICE = "the query failed twice in this micro-batch, or its driver was killed"


@dataclass(frozen=True)
class LeasedPart(InputPartition):
    """Some leases of a micro-batch, by queue, whose messages one task reads."""

    leases: tuple[tuple[str, bytes], ...]


class ConsumingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. It lives on the driver, and holds the leases; copies of it read in tasks."""

    def __init__(self, options: Consuming, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema
        self.holds: dict[tuple[str, str], Hold] = {}
        self.gone = Gone("there is no queue %r any more: what this query held of it went with it")
        self.is_new = False
        self.settled = -1
        self.batches = Batches()
        self.left: int | None = None

    def initialOffset(self) -> Offset:
        """The offset of a query that begins."""
        self.is_new = True
        return {"hold": secrets.token_hex(8), "batch": 0, "rows": {}, "ackOn": self.options.ack_on}

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Settle what is done, and lease the messages of the next micro-batch. Without any the offset stays.

        QueueMissing if a new query names a queue that is not there. Later, one that is gone is no error.
        """
        start = start or self.initialOffset()
        for queue in self.options.queues if self.is_new else ():
            queue_of(self.options, queue)
        self.is_new = False
        self.commit(start)
        name, batch = start["hold"], start["batch"] + 1
        room = self.batches.room(self.options.max_in_flight)
        rows, half = self._chosen(self._lease(name, batch, room), name, room)
        if not rows:
            return start
        ids = {queue: self._hold(queue, name).life for queue in rows}
        after = {"done": self.batches.done, "most": self.batches.most, "half": half}
        return {"hold": name, "batch": batch, "rows": rows, "ids": ids, "ackOn": self.options.ack_on, **after}

    def _lease(self, name: str, batch: int, room: int) -> dict[str, int]:
        """Lease messages of all queues; if none has any, wait for a first one, but not where the query is to end."""
        parts = self._shares(room if self.left is None else min(room, self.left), batch)
        rows, size, queues = {}, self.options.max_bytes, len(parts)
        for at, (queue, part) in enumerate(parts.items()):
            with self._left_out(queue, name):
                if part and size:
                    hold = self._hold(queue, name)
                    rows[queue] = hold.lease(batch, Room(part, max(1, size // (queues - at))), 0.0)
                    size = max(0, size - hold.size)
        if self.left is None and not any(rows.values()):
            rows = self._wait(name, batch, room)
        return {queue: count for queue, count in rows.items() if count}

    def _wait(self, name: str, batch: int, room: int) -> dict[str, int]:
        """Wait on one queue after the other for a first message."""
        queues = self._queues()
        wait = WAIT_SECONDS / len(queues)
        for queue in queues:
            rows: dict[str, int] = {}
            with self._left_out(queue, name):
                rows[queue] = self._hold(queue, name).lease(batch, Room(room, self.options.max_bytes), wait)
            if any(rows.values()):
                return rows
            if not rows:
                threading.Event().wait(wait)  # it may be recreated
        return {}

    def _chosen(self, rows: dict[str, int], name: str, room: int) -> tuple[dict[str, int], int]:
        """Leave suspects alone, if there are any. Return what is left, and the room for the next one if this fails."""
        holds = {queue: self._hold(queue, name) for queue in rows}
        held = [each for hold in holds.values() for each in hold.held]
        chosen = suspects(held, lambda each: each.last_error, name)
        if chosen:
            tokens = {each.token for each in chosen}
            rows = {queue: hold.keep_only(tokens) for queue, hold in holds.items()}
        if self.left is not None:
            self.left -= sum(rows.values())
        half = Batches().failed(room if chosen else sum(rows.values())).most
        return {queue: count for queue, count in rows.items() if count}, half

    def _shares(self, most: int, batch: int) -> dict[str, int]:
        """How many messages of each queue a micro-batch may have, max-min fair, and so of each partition of a queue."""
        queues = self._queues()
        if len(queues) == 1 or not most:
            return dict.fromkeys(queues, most)
        waiting: dict[str, dict[str, int]] = {}
        for queue, stats in self._stats(queues).items():
            if count := stats.backlog + stats.legacy:
                waiting.setdefault(queue_in(queue), {})[queue] = count
        whole = {name: sum(parts.values()) for name, parts in waiting.items()}
        found: dict[str, int] = {}
        for name, room in _in_turn(whole, most, batch).items():
            found |= _in_turn(waiting[name], room, batch)
        return found

    def _queues(self) -> list[str]:
        """The queues, and their partitions beside the heads, by the maps as they were seen last.

        The numbers and leases of a head show its map.
        """
        found: list[str] = []
        for name in self.options.queues:
            state = state_of(self.options, name)
            if not state.streams:
                with suppress(QueueMissing):
                    queue_of(self.options, name)
            found += [each.keys.tag for each in partitions_of(state)]
        return found

    def _stats(self, queues: Sequence[str]) -> dict[str, QueueStats]:
        """The numbers of queues, asked for together; all are zero while there is no such queue."""
        asked = run_together([numbers(state_of(self.options, queue)) for queue in queues])
        found = dict(zip(queues, all_of(client_of(self.options).run(asked)), strict=True))
        for queue, stats in found.items():
            if not stats.streams:
                self.gone.tell(queue)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxInFlight`."""
        return ReadMaxRows(self.options.max_in_flight)

    def reportLatestOffset(self) -> Offset:
        """The backlog of each queue, by which `shardq.spark.lag` tells how far behind the query is."""
        waiting: Offset = {}
        for queue, stats in self._stats(self._queues()).items():
            waiting[queue] = {"waiting": stats.backlog + stats.legacy, "oldestAge": stats.oldest_age or 0.0}
        return waiting

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember how many messages can be delivered now: the query takes as many, and ends."""
        self.left = sum(stats.backlog + stats.legacy for stats in self._stats(self._queues()).values())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The messages of a micro-batch, in parts. If it was begun before, those whose leases have not ended."""
        self.is_new = False  # though it may be its first micro-batch: that was planned when all was there
        begun = self._begun(end) if start["batch"] < end["batch"] else []
        held = [(hold.queue, hold.leases) for hold in begun]
        tasks = dealt(held, share(self.options.partitions))
        return [LeasedPart(tuple((queue, packed(some)) for queue, some in task)) for task in tasks]

    def _begun(self, end: Offset) -> list[Hold]:
        """The hold of the micro-batch that ends at *end*. Begun for the third time, it is given back."""
        known: list[Hold] = []
        again: list[Hold] = []
        for queue in end["rows"]:
            with self._left_out(queue, end["hold"]):
                same_queue(self.options, queue, end)
                hold = self._hold(queue, end["hold"])
                if hold.batch == end["batch"]:
                    known.append(hold)
                elif hold.take_up(end["batch"]):
                    again.append(hold)
        if max((hold.begin_again() for hold in again if hold.held), default=0) > 1:
            for hold in again:
                hold.fail(end, ENDED_TWICE)
        return known + again

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part; runs in a task."""
        from shardq.spark.consume.fetch import read_leased  # the Python that plans a stream does not need these
        from shardq.spark.reader import joined, without_gc

        if not isinstance(partition, LeasedPart):
            return iter(())
        some = ((queue, unpacked(leases)) for queue, leases in partition.leases)
        return without_gc(joined(chain.from_iterable(read_leased(self.options, self.schema, *each) for each in some)))

    def commit(self, end: Offset) -> None:
        """Settle the micro-batch that ends at *end*, unless that was done before."""
        if end["batch"] > self.settled:
            ends = set()
            for queue in end["rows"]:
                with self._left_out(queue, end["hold"]):
                    same_queue(self.options, queue, end)
                    ends.add(self._hold(queue, end["hold"]).settle(end["batch"], end["ackOn"]))
            self.batches = batches_after(end, ends)
            self.settled = end["batch"]

    def stop(self) -> None:
        """Extend nothing any more. Messages that the query holds come again, unless it is started again in time."""
        for hold in self.holds.values():
            hold.stop()

    @contextmanager
    def _left_out(self, queue: str, name: str) -> Iterator[None]:
        """A block that does nothing more once it turns out that there is no such queue: nothing of it is held then."""
        is_there = False
        with self.gone.left_out(queue):
            yield
            is_there = True
        if not is_there and (hold := self.holds.pop((queue, name), None)):
            hold.stop()

    def _hold(self, queue: str, name: str) -> Hold:
        found = self.holds.get((queue, name))
        if found is None:
            state = queue_of(self.options, queue)
            found = Hold(client_of(self.options), state, name, self.options.visibility)
            self.holds[queue, name] = found
        return found


def _in_turn(waiting: Mapping[str, int], most: int, batch: int) -> dict[str, int]:
    """Share out *most* messages among queues in which some are *waiting*; if these are too many, some are in turn."""
    first = batch % max(1, len(waiting))
    turn = [*waiting][first:] + [*waiting][:first]
    return shares({queue: waiting[queue] for queue in turn[:most]}, most)


def batches_after(end: Offset, ends: set[End]) -> Batches:
    """The state of a query's micro-batches once that which ends at *end* has ended like this."""
    before = Batches.before(end)
    if End.FAILED in ends:
        return before._replace(most=end.get("half", 0))
    return before.succeeded() if End.DONE in ends else before


def dealt(
    held: Sequence[tuple[str, Sequence[ReaderLease]]], most: int
) -> list[list[tuple[str, Sequence[ReaderLease]]]]:
    """Deal the leases of queues to at most *most* tasks, about as many to each. Queues with few share a task."""
    size = max(1, -(-sum(len(leases) for _, leases in held) // most))
    tasks: list[list[tuple[str, Sequence[ReaderLease]]]] = []
    room = 0
    for queue, leases in held:
        at = 0
        while at < len(leases):
            if not room:
                tasks.append([])
                room = size
            some = leases[at : at + room]
            tasks[-1].append((queue, some))
            at, room = at + len(some), room - len(some)
    return tasks
