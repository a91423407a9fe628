"""The journal as a table, which is read in ranges of event numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import compress, pairwise
from typing import Any, NamedTuple

from msgspec.structs import fields, replace

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError, QueueMissing
from shardq.model.event import unpacked
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.protocol.journal import LOST, EventColumns, decode, with_lost
from shardq.protocol.replies import created_ms
from shardq.spark.connection import queue_in, same_seen_queue, seen_queue
from shardq.spark.entries import constant, text_array, times
from shardq.spark.ops import scan
from shardq.spark.ops.scan import entry_id
from shardq.spark.options import Reading, listed, place_of
from shardq.spark.parts import SparkPart

log = logging.getLogger("shardq")
SPLIT = 50_000
"""More events than this are read by several tasks."""
LAST_SEQUENCE = 2**64 - 1
"""The highest second half of an entry id."""


class JournalTrack:
    """The events of one journal. A point among them is the number of an event: events up to it have been read."""

    def __init__(self, client: Client, state: QueueState, options: Reading) -> None:
        self._client, self._state, self._options = client, state, options
        self.life = state.view.id
        self._is_kept = bool(state.config.journal)

    def first(self) -> int:
        """The point before the oldest event that is kept, or before `startingTimestamp`."""
        start = self._options.starting_timestamp
        return self._before(start) if start else self._oldest()

    def last(self) -> int:
        """The point after the newest event, or after `endingTimestamp`. ConfigError if the queue keeps no journal."""
        end = self._options.ending_timestamp
        return self._before(end + 1) if end else self._newest()

    def anew(self) -> int:
        """The point at which a stream continues that has read an earlier queue of this name.

        That is before the first event that the queue had, so that those which it has dropped since then are missed. (If
        its journal was switched on later, a number is left out there.)
        """
        first, begin = self.first(), created_ms(self.life) * 1000
        return first if first <= begin + 1 or self._options.starting_timestamp else begin

    def precedes(self, point: int) -> bool:
        """Whether a point is older than the queue: events are numbered from the time of its creation."""
        return point < created_ms(self.life) * 1000

    def _before(self, ms: int) -> int:
        """The point before the events from a time on, found by binary search: events are in the order of time."""
        low, high = self._oldest(), self._newest()
        while low < high:
            middle = (low + high) // 2
            rows = self._client.run(
                scan.page(self._state, self._state.keys.journal, f"{middle}-{LAST_SEQUENCE}", "+", 1)
            )
            number, time = entry_id(rows[0][0]) if rows else (high, ms)
            low, high = (low, middle) if time >= ms else (number, high)
        return low

    def _oldest(self) -> int:
        rows = self._client.run(scan.page(self._state, self._state.keys.journal, "-", "+", 1))
        events = decode(rows, after=0)
        return events.number[0] - 1 if events.number else self._newest()

    def _newest(self) -> int:
        meta, name = self._state.keys.meta, self._state.keys.name
        raw = self._client.run(ask(self._state, "HGET", meta, "events"))
        if raw is None:
            raise QueueMissing(f"there is no queue {name!r}")
        if not self._is_kept:
            raise ConfigError(f"queue {name!r} keeps no journal: queue.configure(journal=1_000_000) starts it")
        return int(raw)

    def given(self, option: str) -> int:
        """The point that the option names."""
        match place_of(self._options.point(option, self._state.keys.tag)):
            case "earliest":
                return self.first()
            case "latest":
                return self.last()
            case int(number):
                point = unpacked(number, self._state.number + 1)[-1]
                return point if point or not self._state.number else self.first()
        raise ConfigError(f"option {option} of a journal must hold numbers of events")

    def time(self, point: int) -> int | None:
        """The time of the event at a point, in ms, by which it is known again; None if it is not kept."""
        rows = self._client.run(
            scan.page(self._state, self._state.keys.journal, f"{point - 1}-{LAST_SEQUENCE}", "+", 1)
        )
        events = decode(rows, after=0)
        return events.time_ms[0] if events.number and events.number[0] <= point else None

    def begin(self, start: int, time: int | None, end: int) -> int:
        """Where to continue for a query that has read up to the event *start* of that *time*: there, as a rule.

        If Redis was rolled back, events that the query has not read have numbers that it has passed. ConfigError then;
        or, if data may be lost, the point before them: they are newer than what the query has read.
        """
        if start <= end and (time is None or not self._is_another(start, time)):
            return start
        if not self._options.fail_on_data_loss:
            return min(start, end) if time is None else self._before(time + 1)
        name = self._state.keys.name
        text = f"event {start} of queue {name!r} is another one than the query has read: Redis was rolled back, or"
        if start > end:
            text = f"the query has read queue {name!r} up to event {start}, the newest is {end}: Redis lost data, or"
        raise ConfigError(f"{text} it is another server; failOnDataLoss=false continues with the events that are new")

    def _is_another(self, number: int, time: int) -> bool:
        """Whether the event with this number is one of another time, or is gone though an older one is kept."""
        found = self.time(number)
        return self._oldest() < number if found is None else found != time

    def lag(self, start: int, end: int, most: int) -> int:
        """How many events lie between two points, or *most* if they are more."""
        return min(most, max(0, end - start))

    def on(self, start: int, end: int, count: int) -> int:
        """The point *count* events after *start*, not after *end*."""
        return min(end, start + count)

    def parts(self, start: int, end: int, most: int) -> list[SparkPart]:
        """The events between two points, in parts of equal size."""
        parts = max(1, min(most, (end - start) // SPLIT))
        cuts = [start + (end - start) * at // parts for at in range(parts + 1)]
        tag = self._state.keys.tag
        return [SparkPart(tag, (), str(low), str(high), self.life) for low, high in pairwise(cuts) if low < high]


def read_events(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: SparkPart
) -> Iterator[pa.RecordBatch]:
    """The events of a part; ConfigError if some are lost and `failOnDataLoss` is true, QueueMissing if all are gone.

    With `markDataLoss` a row of the kind "lost" stands where some are missing.
    """
    life = _life(options, state)
    position, end, key = int(part.after), int(part.until), state.keys.journal
    keys = frozenset(each.encode() for each in listed(options.shard_keys))
    while position < end:
        rows = client.run(scan.page(state, key, f"{position}-{LAST_SEQUENCE}", "+", max(1, options.fetch_size // 10)))
        events = decode(rows, position, end)
        seen = min(end, int(rows[-1][0].partition(b"-")[0])) if rows else end
        if lost := seen - position - len(events.number):
            same_seen_queue(options, part.queue, part.life)  # those of a queue that was deleted are not lost
            _lose(state.keys.name, options, lost, position)
            if options.mark_data_loss:
                events = with_lost(events, position, seen, created_ms(life))
        position = seen
        if keys:
            events = _only(events, [key in keys for key in events.shard_key])
        if state.number:  # the head alone reports actions on all partitions
            told = zip(events.message_id, events.kind, strict=True)
            events = _only(events, [bool(message_id) or kind == LOST for message_id, kind in told])
        if events.number:
            yield _batch(EventSource(state.keys.name, life, state.number), events, schema)


def _life(options: Reading, state: QueueState) -> str:
    """The id of the whole queue of a partition."""
    return seen_queue(options, queue_in(state.keys.tag)).view.id if state.number else state.view.id


class EventSource(NamedTuple):
    """The origin of events: the name and the id of a queue, and the number of a partition."""

    queue: str
    life: str
    partition: int


def _batch(source: EventSource, events: EventColumns, schema: pa.Schema) -> pa.RecordBatch:
    size = len(events.number)
    columns: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "queue": lambda kind: constant(source.queue, size, kind),
        "queue_id": lambda kind: constant(source.life, size, kind),
        "partition": lambda kind: pa.repeat(pa.scalar(source.partition, kind), size),
        "number": lambda kind: pa.array(events.number, kind),
        "time": lambda _: times(events.time_ms),
        "kind": lambda kind: pa.array(events.kind, kind),
        "message_id": lambda kind: pa.array(
            [None if name == LOST else each for name, each in zip(events.kind, events.message_id, strict=True)], kind
        ),
        "shard_key": lambda kind: text_array(events.shard_key, kind),
        "stream": lambda kind: pa.array(events.stream, kind),
        "count": lambda kind: pa.array(events.count, kind),
        "due": lambda _: times(events.due_ms),
        "client": lambda kind: pa.array([each or None for each in events.client], kind),
        "by": lambda kind: pa.array([each or None for each in events.by], kind),
        "note": lambda kind: pa.array([each or None for each in events.note], kind),
        "task": lambda kind: pa.array([each or None for each in events.task], kind),
        "charged_ms": lambda kind: pa.array(_ms(events.charged), kind),
        "ran_ms": lambda kind: pa.array(_ms(events.ran), kind),
        "values": lambda kind: pa.array([list(each.items()) or None for each in events.values], kind),
        "version": lambda kind: pa.array(events.version, kind),
    }
    return pa.record_batch([columns[each.name](each.type) for each in schema], schema=schema)


def _ms(tenths: list[int | None]) -> list[float | None]:
    return [None if each is None else each / 10 for each in tenths]


def _only(events: EventColumns, wanted: list[bool]) -> EventColumns:
    """The events that are wanted."""
    some: dict[str, Any] = {
        each.name: [*compress(column, wanted)]
        for each in fields(events)
        if isinstance(column := getattr(events, each.name), list)
    }
    return replace(events, **some)


def _lose(name: str, options: Reading, lost: int, position: int) -> None:
    text = (
        f"{lost:,} events after position {position} of the journal of queue {name!r} are lost: it keeps too few events "
        "(setting `journal`) for how late it is read"
    )
    if options.fail_on_data_loss:
        raise ConfigError(f"{text}; failOnDataLoss=false continues without them")
    log.warning("%s", text)
