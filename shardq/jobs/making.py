"""Make the table of jobs in plain Python: from live journals, or from an archive, into a folder or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.client import Client
from shardq.errors import QueueMissing
from shardq.jobs import archive, live
from shardq.jobs.folder import FolderRun, TableFolder
from shardq.jobs.gone import RunQueues
from shardq.jobs.schema import CAPACITY, JOBS, LOST, SETTINGS
from shardq.jobs.seen import seen_settings
from shardq.jobs.step import ORDER, MadeJobs, State, advance, lives_of
from shardq.jobs.writing import write_file

Seen = Callable[[str, str, pa.Table], pa.Table | None]
"""Returns how a queue is set, of its name, its id and its first events; None if nobody knows."""


class Totals(NamedTuple):
    """The counts of a run: events that it read, jobs that ended, jobs that are open now, events that were missing."""

    events: int = 0
    jobs: int = 0
    open: int = 0
    lost: int = 0


class JobsSource(Protocol):
    """Where events come from."""

    def steps(self, run: FolderRun) -> Iterator[tuple[pa.Table, FolderRun]]:
        """The events behind a run, in steps; with each what a run that ends there says."""


@dataclass(slots=True)
class LiveQueue:
    """The journals of some queues, as they are now."""

    client: Client
    names: Sequence[str]
    queues: RunQueues = field(init=False)

    def __post_init__(self) -> None:
        """Nobody knows yet which of them are gone."""
        self.queues = RunQueues(self.names)

    def steps(self, run: FolderRun) -> Iterator[tuple[pa.Table, FolderRun]]:
        """As of `JobsSource`. QueueMissing if there is none of the queues, ConfigError for one without a journal."""
        for name in self.names:
            steps = live.steps(self.client, name, run.queues.get(name, {}).get("points", []))
            first = self.queues.ask(name, partial(next, steps))
            for found in chain([first], steps) if first is not None else ():
                told = {"id": found.queue_id, "points": found.points, "upto": found.upto}
                run = replace(run, queues={**run.queues, name: told})
                yield found.events, run
        self.queues.check()

    def seen(self, name: str, queue_id: str, events: pa.Table) -> pa.Table | None:
        """As of `Seen`; None if the queue is another one by now."""
        return settings_if_there(self.client, name, queue_id, events)


@dataclass(frozen=True, slots=True)
class Archived:
    """The archived part of some queues, or of all."""

    path: Path
    names: Sequence[str]

    def steps(self, run: FolderRun) -> Iterator[tuple[pa.Table, FolderRun]]:
        """As of `JobsSource`. ConfigError if there is no archive."""
        for found, batch in archive.steps(self.path, self.names, run.batch):
            points = {
                (told["id"], part): point for told in run.queues.values() for part, point in enumerate(told["points"])
            }
            events = archive.unread(found, points)
            run = replace(run, queues={**run.queues, **points_in(events, run)}, batch=batch)
            yield events, run


def points_in(events: pa.Table, run: FolderRun) -> dict[str, Any]:
    """Return how far the queues of *events* are read with them."""
    found: dict[str, Any] = {}
    lives = lives_of(events)
    for (queue_id, partition), number in sorted(archive.points_of(events).items()):
        name = lives[queue_id].name
        told = found.get(name) or run.queues.get(name, {"id": queue_id, "points": []})
        if told["id"] != queue_id:
            told = {"id": queue_id, "points": []}
        points = [*told["points"], *[0] * (partition + 1 - len(told["points"]))]
        points[partition] = number
        found[name] = {"id": queue_id, "points": points, "upto": lives[queue_id].until}
    return found


def settings_if_there(client: Client, name: str, queue_id: str, events: pa.Table) -> pa.Table | None:
    """Return how the queue with this id is set now; None if it is gone."""
    queue = client.queue(name, create=False)
    try:
        return seen_settings(queue, queue_id, events) if queue.stats().id == queue_id else None
    except QueueMissing:
        return None


def make(source: JobsSource, out: Path, seen: Seen) -> Totals:
    """Add to the folder *out* the jobs that ended since its newest run. ConfigError if somebody else does that."""
    folder = TableFolder(out)
    with folder.locked():
        before = folder.newest()
        number = before.number + 1
        folder.begin(number)
        making = _Making(source, before, folder.state(before), seen)
        for step, made in enumerate(making.steps()):
            folder.add(number, step, made)
        folder.finish(making.run.done(number, making.state), making.state)
    return making.tally


@dataclass(slots=True)
class _Making:
    """One run: how far it is."""

    source: JobsSource
    run: FolderRun
    state: State
    seen: Seen
    tally: Totals = field(init=False)

    def __post_init__(self) -> None:
        """Count what was open before."""
        self.tally = Totals(open=len(self.state.open))

    def steps(self) -> Iterator[MadeJobs]:
        """The additions of each step."""
        for events, run in self.source.steps(self.run):
            self.run = run
            self.state, made = advance(self.state, events, self._seen(events))
            lost, before = pc.sum(made.lost["events"]).as_py() or 0, self.tally
            self.tally = Totals(
                before.events + len(events), before.jobs + len(made.jobs), len(self.state.open), before.lost + lost
            )
            yield made

    def _seen(self, events: pa.Table) -> pa.Table | None:
        """How the queues are set whose table begins."""
        new = [(life.name, each) for each, life in lives_of(events).items() if each not in self.state.until]
        rows = [self.seen(name, queue_id, _of(events, queue_id)) for name, queue_id in new]
        found = [each for each in rows if each is not None]
        return pa.concat_tables(found) if found else None


def _of(events: pa.Table, queue_id: str) -> pa.Table:
    return events.filter(pc.equal(events["queue_id"], queue_id))


SUFFIX: Final = ".parquet"


def make_file(source: JobsSource, out: Path, seen: Seen) -> Totals:
    """Write all jobs that ended to the file *out*, and beside it `NAME.open.parquet` and so on, each from the start."""
    tables: dict[str, list[pa.Table]] = {
        "jobs": [JOBS.empty_table()], "settings": [SETTINGS.empty_table()],
        "capacity": [CAPACITY.empty_table()], "lost": [LOST.empty_table()],
    }  # fmt: skip
    making = _Making(source, FolderRun(), State(), seen)
    for made in making.steps():
        for name, rows in tables.items():
            rows.append(getattr(made, name))
    tables["open"], tables["capacity"] = [making.state.open], [*tables["capacity"], making.state.present]
    for name, rows in tables.items():
        table = pa.concat_tables(rows)
        path = out if name == "jobs" else out.with_name(f"{out.name.removesuffix(SUFFIX)}.{name}{SUFFIX}")
        write_file(table.sort_by(ORDER) if name == "jobs" else table, path)
    return making.tally
