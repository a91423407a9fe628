"""Dead letters as a table, which is read in ranges of entry ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.client import Client
from shardq.errors import ConfigError
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.protocol.replies import created_ms
from shardq.spark.entries import Entries, batch_of, ms_of, text_array
from shardq.spark.ops import scan
from shardq.spark.ops.scan import entry_id
from shardq.spark.options import Reading, listed, place_of
from shardq.spark.pages import pages
from shardq.spark.parts import SparkPart

ENTRY_ID = re.compile(r"\d{1,16}-\d{1,20}", re.ASCII)
SPLIT = 20_000
"""More dead letters than this are read by several tasks."""
LAST_SEQUENCE = 2**64 - 1
"""The highest second half of an entry id."""


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
        parts = min(most, 1 + count // SPLIT)
        cuts = [f"{first + (last + 1 - first) * at // parts - 1}-{LAST_SEQUENCE}" for at in range(1, parts)]
        points = [start, *cuts, end]
        return [SparkPart(self._state.keys.tag, (), low, high, self.life) for low, high in pairwise(points)]


def read_dead(
    client: Client, state: QueueState, options: Reading, schema: pa.Schema, part: SparkPart
) -> Iterator[pa.RecordBatch]:
    """The dead letters of *part*."""
    keys = frozenset(key.encode() for key in listed(options.shard_keys))
    for rows in pages(client, state, state.keys.dead, part.after, part.until, options.fetch_size):
        found = [row for row in rows if len(row[1]) > 9 and row[1][9] in keys] if keys else rows
        if found:
            yield _batch(state.keys.name, found, schema)


def _batch(queue: str, rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of dead letters, given as XRANGE returns them."""
    ids = [row[0] for row in rows]
    heads, flats = [], []
    for entry, flat in rows:
        ours = len(flat) >= 8 and flat[0] == b"i"
        heads.append(flat[1:8:2] if ours else [entry, b"", b"0", b""])
        flats.append(flat[8:] if ours else flat)
    message_ids, reasons, counts, errors = (list(column) for column in zip(*heads, strict=True))
    own: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "message_id": lambda kind: text_array(message_ids, kind),
        "reason": lambda kind: text_array(reasons, kind),
        "count": lambda kind: pa.array([int(each) if each.isdigit() else 0 for each in counts], kind),
        "last_error": lambda kind: text_array([each or None for each in errors], kind),
        "written_at": lambda _: ms_of(pa.array(message_ids, pa.binary())),
        "died_at": lambda _: ms_of(pa.array(ids, pa.binary())),
        "entry_id": lambda kind: text_array(ids, kind),
    }
    shared = pa.schema([each for each in schema if each.name not in own])
    rest = batch_of(Entries(queue, "", ids, flats, "dead"), shared)
    columns = [own[each.name](each.type) if each.name in own else rest.column(each.name) for each in schema]
    return pa.record_batch(columns, schema=schema)
