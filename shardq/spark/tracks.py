"""Tracks: the journals and dead letters of queues as points between which rows are read, in batches and as streams.

Spark starts a Python for each stream, which plans it by these alone. Its tasks import the modules that make the rows.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from shardq.errors import ConfigError, QueueMissing
from shardq.model.event import unpacked
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.protocol.journal import decode
from shardq.protocol.replies import created_ms
from shardq.spark.ops import scan
from shardq.spark.ops.scan import LAST_SEQUENCE, entry_id
from shardq.spark.options import Reading, place_of
from shardq.spark.parts import SparkPart

if TYPE_CHECKING:
    from shardq.client import Client

ENTRY_ID: Final = re.compile(r"\d{1,16}-\d{1,20}", re.ASCII)
MANY_EVENTS: Final = 50_000
"""More events than this are read by several tasks."""
MANY_LETTERS: Final = 20_000
"""More dead letters than this are read by several tasks."""


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
        parts = max(1, min(most, (end - start) // MANY_EVENTS))
        cuts = [start + (end - start) * at // parts for at in range(parts + 1)]
        tag = self._state.keys.tag
        return [SparkPart(tag, (), str(low), str(high), self.life) for low, high in pairwise(cuts) if low < high]


class DeadTrack:
    """The dead letters of one queue. A point among them is an entry id: letters up to it have been read."""

    def __init__(self, client: Client, state: QueueState, options: Reading) -> None:
        self._client, self._state, self._options = client, state, options
        self.life = state.view.id

    def first(self) -> str:
        """The point before all dead letters, or before `startingTimestamp`."""
        start = self._options.starting_timestamp
        return f"{start - 1}-{LAST_SEQUENCE}" if start else "0-0"

    def last(self) -> str:
        """The point after the newest dead letter that there ever was, or after `endingTimestamp`."""
        newest = self._client.run(scan.last_id(self._state, self._state.keys.dead))
        end = self._options.ending_timestamp
        return f"{end}-{LAST_SEQUENCE}" if 0 < end < entry_id(newest.encode())[0] else newest

    def anew(self) -> str:
        """The point at which a stream continues that has read an earlier queue of this name: before all letters."""
        return self.first()

    def precedes(self, point: str) -> bool:
        """Whether a point is older than the queue."""
        return entry_id(point.encode())[0] < created_ms(self.life)

    def given(self, option: str) -> str:
        """The point that the option names."""
        value = place_of(self._options.point(option, self._state.keys.tag))
        if value in ("earliest", "latest"):
            return self.first() if value == "earliest" else self.last()
        if not isinstance(value, str) or not ENTRY_ID.fullmatch(value):
            raise ConfigError(f"option {option} of dead letters must hold entry ids, such as 1732150000000-0")
        return value

    def time(self, point: str) -> int:
        """The time of a point: an entry id says it."""
        return entry_id(point.encode())[0]

    def begin(self, start: str, time: int | None, end: str) -> str:
        """Where to continue for a query that has read up to *start*: there, as a rule.

        ConfigError when that is newer than the newest dead letter that there ever was; or that one's point, if data may
        be lost. If Redis was rolled back and has new dead letters, these have later ids, so none is passed over.
        """
        if entry_id(start.encode()) <= entry_id(end.encode()):
            return start
        if not self._options.fail_on_data_loss:
            return end
        raise ConfigError(
            f"the query has read dead letters of queue {self._state.keys.name!r} up to {start}, but the newest is "
            f"{end}: Redis lost data, or it is another server; failOnDataLoss=false continues from there"
        )

    def lag(self, start: str, end: str, most: int) -> int:
        """How many dead letters lie between two points, or *most* if they are more."""
        if entry_id(start.encode()) >= entry_id(end.encode()):
            return 0
        return self._client.run(scan.skip(self._state, self._state.keys.dead, start, end, most))[1]

    def on(self, start: str, end: str, count: int) -> str:
        """The point *count* letters after *start*, not after *end*."""
        last, found = self._client.run(scan.skip(self._state, self._state.keys.dead, start, end, count))
        return last if found else end

    def parts(self, start: str, end: str, most: int) -> list[SparkPart]:
        """The dead letters between two points, in parts that cover equal times; one part if they are few."""
        if entry_id(start.encode()) >= entry_id(end.encode()):
            return []
        count = self._client.run(ask(self._state, "XLEN", self._state.keys.dead))
        rows = self._client.run(scan.page(self._state, self._state.keys.dead, start, end, 1))
        if not rows:
            return []
        first, last = entry_id(rows[0][0])[0], entry_id(end.encode())[0]
        parts = min(most, 1 + count // MANY_LETTERS)
        cuts = [f"{first + (last + 1 - first) * at // parts - 1}-{LAST_SEQUENCE}" for at in range(1, parts)]
        points = [start, *cuts, end]
        return [SparkPart(self._state.keys.tag, (), low, high, self.life) for low, high in pairwise(points)]


TRACKS: Final[dict[str, Any]] = {"journal": JournalTrack, "dead": DeadTrack}
"""The tables that are read in ranges between two points, and so can be read as streams."""
