"""The events of a queue's own journal, in steps: all of a step are before all of the next, in every partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.client import Client
from shardq.errors import ConfigError, QueueMissing
from shardq.jobs.arrays import ms_of, one
from shardq.jobs.batch import table_of
from shardq.jobs.schema import EVENTS
from shardq.ops.inspect.journal import MAX_PAGE, journal_columns
from shardq.ops.queue.retry import ask
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.protocol.replies import created_ms

STEP: Final = 500_000
"""Events of a step, about: some 100 MB."""


class LiveStep(NamedTuple):
    """Events in the order of their numbers, up to which number each partition was read then, and `upto` when, in ms."""

    events: pa.Table
    points: list[int]
    queue_id: str
    upto: int


def seen_states(client: Client, name: str) -> list[QueueState]:
    """Return the partitions of a queue as they are now; of one without, itself. QueueMissing, ConfigError."""
    head = client.state_of(name, {}, create=False)
    _see(client, head)
    if not head.config.journal:
        raise ConfigError(f"queue {name!r} keeps no journal: shardq configure {name} journal=1000000 begins one")
    found = [head]
    for each in head.parts.states[1:] if head.parts is not None else ():
        with suppress(QueueMissing):  # it was drained and removed since the map was seen
            found.append(_see(client, each))
    return found


def _see(client: Client, state: QueueState) -> QueueState:
    seen = client.run(sight(state, state.until()))
    state.know(replace(seen.view, epoch=""))  # a call that changes the queue looks it up, which needs other rights
    return state


def server_ms(client: Client, state: QueueState) -> int:
    """Return the time of the server that has a queue or partition: what happened before, its journal has."""
    seconds, micros = client.run(ask(state, "TIME", key=state.keys.meta))
    return int(seconds) * 1000 + int(micros) // 1000


def steps(client: Client, name: str, points: Sequence[int], size: int = STEP) -> Iterator[LiveStep]:
    """Read the journal of a queue behind *points*, one for each partition, up to what it holds now."""
    states = seen_states(client, name)
    now = min(server_ms(client, each) for each in states)
    life = states[0].view.id
    tracks = [_Track(client, each, name, life, points[at] if at < len(points) else 0) for at, each in enumerate(states)]
    share = max(1, size // len(tracks))
    while True:
        for track in tracks:
            track.fetch(share)
        cut = min((track.newest() for track in tracks if not track.is_done), default=None)
        events = [track.take(cut) for track in tracks]
        yield LiveStep(pa.concat_tables(events), [track.point for track in tracks], life, now if cut is None else cut)
        if cut is None:
            return


@dataclass
class _Track:
    """The events that were read of one partition, and are not taken yet."""

    client: Client
    state: QueueState
    name: str
    queue_id: str
    point: int
    position: int = 0
    is_done: bool = False
    pending: pa.Table = field(default_factory=EVENTS.empty_table)

    def fetch(self, size: int) -> None:
        """Read on until there are *size* events, or no more."""
        pages = [self.pending]
        self.position = max(self.position, self.point)
        while not self.is_done and sum(map(len, pages)) < size:
            page = self.client.run(journal_columns(self.state, MAX_PAGE, self.position))
            self._check(page.queue_id)
            if self.position > page.latest and created_ms(page.queue_id) * 1000 <= self.position:
                raise ConfigError(
                    f"the journal of queue {self.name!r} was read up to event {self.position}, and its newest is "
                    f"{page.latest}: Redis lost data, or it is another server; begin another folder"
                )
            pages.append(table_of(self.name, self.queue_id, self.state.number, page.columns, page.start, page.position))
            self.position, self.is_done = page.position, page.position >= page.latest
        self.pending = pa.concat_tables(pages)

    def _check(self, life: str) -> None:
        if not self.state.number and life != self.queue_id:
            raise QueueMissing(f"queue {self.name!r} was deleted and created again while it was read")

    def newest(self) -> int:
        """Return the time of the newest event that was read, in ms."""
        return int(ms_of(one(self.pending["time"].slice(len(self.pending) - 1)))[0])

    def take(self, cut: int | None) -> pa.Table:
        """Take the events before a time, or all; at least those of the first ms, so that it continues."""
        if cut is None:
            taken, self.pending, self.point = self.pending, EVENTS.empty_table(), self.position
            return taken
        times = ms_of(one(self.pending["time"]))
        is_before = times < cut
        if not self.is_done and not is_before.any():
            is_before = times <= cut
        taken = self.pending.filter(pa.array(is_before))
        self.pending = self.pending.filter(pa.array(~is_before))
        if len(taken):
            self.point = pc.max(taken["number"]).as_py()
        return taken
