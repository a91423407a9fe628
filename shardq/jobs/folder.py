"""A folder of the tables of jobs on this machine (the layout is in `schema`), to which runs add."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.errors import ConfigError
from shardq.jobs.blocked import BUCKETS, bucket_table, buckets_of
from shardq.jobs.compacting import compact
from shardq.jobs.schema import OPEN, SETTINGS
from shardq.jobs.step import MadeJobs, State
from shardq.jobs.tables import TABLES, RunTables, run_name
from shardq.jobs.writing import write_file, write_text

REWRITTEN: Final = ("open", "present", "state")
"""The tables that each run writes again. Those of the run before are kept, since somebody may be reading them."""
VERSION: Final = 1
"""The format of the file of a run."""
DAY: Final = "%Y-%m-%d"
RUN: Final = re.compile("[0-9]{12}")
"""The name of the file of a run that is done, without its suffix."""


@dataclass(frozen=True, slots=True)
class FolderRun:
    """The record of a run that is done: its number, how far it read each queue, and up to which batch of an archive.

    `queues` are by name: the queue's `id`, `points`, the number of the last event in each partition, and `upto` what
    time, in ms, that is. `until` are the times of the last events, in ms, and `names` the queues' names, by their ids.
    """

    number: int = -1
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    batch: int = -1
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def told(cls, number: int, text: str) -> FolderRun:
        """Return what the file of a run says."""
        said = json.loads(text)
        if said["version"] != VERSION:
            raise ConfigError(f"the tables are of version {str(said['version'])[:40]}, and this shardq knows {VERSION}")
        if not all(isinstance(said[each], dict) for each in ("queues", "until", "names")):
            raise TypeError("its parts are no tables")
        if type(said["batch"]) is not int:
            raise TypeError("its batch is no number")
        return cls(number, said["queues"], said["until"], said["batch"], said["names"])

    def done(self, number: int, state: State) -> FolderRun:
        """Return what a run with this number says that ends here."""
        return replace(self, number=number, until=state.until, names=state.names)

    @property
    def upto(self) -> float:
        """Up to when journals were read, in seconds since the epoch; 0 if none was."""
        return max((told["upto"] for told in self.queues.values()), default=0) / 1000

    def fields(self) -> dict[str, Any]:
        """Return the content of its file."""
        return {
            "version": VERSION, "run": self.number, "queues": self.queues, "until": self.until, "batch": self.batch,
            "names": self.names,
        }  # fmt: skip


class TableFolder:
    """Tables of jobs in a folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from adding to it meanwhile. ConfigError if somebody does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "_lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(f"another run is adding jobs to {self.path}: let it end first") from None
            yield

    def newest(self) -> FolderRun:
        """Return the newest run that is done; one with the number -1 if none is."""
        runs = self.path / "runs"
        found = max((int(each.stem) for each in runs.glob("*.json") if RUN.fullmatch(each.stem)), default=-1)
        if found < 0:
            if any((self.path / name).exists() for name in TABLES) and not runs.exists():
                raise ConfigError(f"{self.path} has tables, but no folder runs: it is no folder of jobs, or damaged")
            return FolderRun()
        path = runs / f"{found:012d}.json"
        try:
            return FolderRun.told(found, path.read_text())
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigError(f"{path} is not what a run says that is done: the folder is damaged") from None

    # --- reading ------------------------------------------------------------------------------------------------

    def table(self, name: str) -> pa.Table:
        """Return one of the tables jobs, settings, capacity and lost, of all runs that are done."""
        return self.at(self.newest()).table(name)

    def open(self) -> pa.Table:
        """Return the jobs that had not ended when the newest run was done."""
        return self.at(self.newest()).open()

    def at(self, run: FolderRun) -> RunTables:
        """Return the tables as they were when *run* was done."""
        return RunTables(self.path, run.number)

    def state(self, run: FolderRun) -> State:
        """Return the state from which the run after *run* continues."""
        tables = self.at(run)
        return State(
            open=tables.open(),
            letters=tables.kept("letters", OPEN),
            controls=tables.kept("controls", SETTINGS),
            present=tables.present(),
            buckets=buckets_of(tables.kept("buckets", BUCKETS)),
            until=run.until,
            names=run.names,
        )

    # --- writing ------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """Remove what a run with this number left that was not done."""
        name = run_name(number)
        for each in (*TABLES, *REWRITTEN):
            for left in (self.path / each / name, *(self.path / each).glob(f"day=*/{name}")):
                shutil.rmtree(left, ignore_errors=True)

    def add(self, number: int, step: int, made: MadeJobs) -> None:
        """Write what a step of a run made."""
        name, part = run_name(number), f"part-{step:05d}.parquet"
        for day, rows in by_day(made.jobs):
            write_file(rows, self.path / "jobs" / f"day={day}" / name / part)
        for each in ("settings", "capacity", "lost"):
            if len(rows := getattr(made, each)):
                write_file(rows, self.path / each / name / part)

    def finish(self, run: FolderRun, state: State) -> None:
        """Write the state from which the next run continues, then that this one is done."""
        name = run_name(run.number)
        jobs = state.open.sort_by([("queue", "ascending"), ("shard_key", "ascending")])
        write_file(jobs, self.path / "open" / name / "open.parquet")
        write_file(state.present, self.path / "present" / name / "present.parquet")
        kept = self.path / "state" / name
        write_file(state.letters, kept / "letters.parquet")
        write_file(state.controls, kept / "controls.parquet")
        write_file(bucket_table(state.buckets), kept / "buckets.parquet")
        write_text(json.dumps(run.fields()), self.path / "runs" / f"{run.number:012d}.json")
        self._forget(run.number)
        compact(self.path, run.number, f"{datetime.fromtimestamp(run.upto, UTC):{DAY}}")

    def _forget(self, number: int) -> None:
        """Remove the records and the rewritten tables of all runs before the last two."""
        for said in (self.path / "runs").glob("*.json"):  # first: so readers of their tables see that these go
            if RUN.fullmatch(said.stem) and int(said.stem) < number - 1:
                said.unlink(missing_ok=True)
        for name in REWRITTEN:
            for each in (self.path / name).glob("run=*"):
                run = each.name.removeprefix("run=")
                if RUN.fullmatch(run) and int(run) < number - 1:
                    shutil.rmtree(each, ignore_errors=True)


def by_day(jobs: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Return the rows of each day (UTC) on which jobs ended, in their order."""
    days = pc.strftime(jobs["ended_at"], DAY)
    for day in sorted(pc.unique(days).to_pylist()):
        yield day, jobs.filter(pc.equal(days, day))
