"""A folder of the tables of jobs on this machine (the layout is in `schema`), to which runs add."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

from shardq.errors import ConfigError
from shardq.jobs.blocked import BUCKETS, bucket_table, buckets_of
from shardq.jobs.schema import CAPACITY, JOBS, LOST, OPEN, SETTINGS
from shardq.jobs.step import MadeJobs, State

TABLES: Final = {"jobs": JOBS, "settings": SETTINGS, "capacity": CAPACITY, "lost": LOST}
"""The tables that runs add to."""
REWRITTEN: Final = ("open", "present", "state")
"""The tables that each run writes anew. Those of the run before are kept, since somebody may be reading them."""
DAY: Final = "%Y-%m-%d"
RUN: Final = re.compile("[0-9]{12}")
"""The name of the file of a run that is done, without its suffix."""


@dataclass(frozen=True, slots=True)
class FolderRun:
    """What a run that is done says: its number, how far it read each queue, and up to which batch of an archive.

    `queues` are by name: the queue's `id`, and `points`, the number of the last event in each partition. `until` are
    the times of the last events, in ms, and `names` the queues' names, by their ids.
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
        if not all(isinstance(said[each], dict) for each in ("queues", "until", "names")):
            raise TypeError("its parts are no tables")
        if type(said["batch"]) is not int:
            raise TypeError("its batch is no number")
        return cls(number, said["queues"], said["until"], said["batch"], said["names"])

    def done(self, number: int, state: State) -> FolderRun:
        """Return what a run with this number says that ends here."""
        return replace(self, number=number, until=state.until, names=state.names)

    def fields(self) -> dict[str, Any]:
        """What its file says."""
        return {
            "run": self.number, "queues": self.queues, "until": self.until, "batch": self.batch, "names": self.names,
        }  # fmt: skip


def run_name(number: int) -> str:
    """Return the name of the folder with the rows of a run."""
    return f"run={number:012d}"


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
        return self._read(self.path / name, TABLES[name])

    def open(self) -> pa.Table:
        """Return the jobs that had not ended when the newest run was done."""
        return self._read(self.path / "open" / run_name(self.newest().number), OPEN)

    def present(self) -> pa.Table:
        """Return the workers that were there when the newest run was done."""
        return self._read(self.path / "present" / run_name(self.newest().number), CAPACITY)

    def state(self, run: FolderRun) -> State:
        """Return what the run after *run* goes on from."""
        name = run_name(run.number)
        kept = self.path / "state" / name
        return State(
            open=self._read(self.path / "open" / name, OPEN),
            letters=self._read(kept / "letters.parquet", OPEN),
            controls=self._read(kept / "controls.parquet", SETTINGS),
            present=self._read(self.path / "present" / name, CAPACITY),
            buckets=buckets_of(self._read(kept / "buckets.parquet", BUCKETS)),
            until=run.until,
            names=run.names,
        )

    def _read(self, path: Path, schema: pa.Schema) -> pa.Table:
        if not path.exists():
            return schema.empty_table()
        done = self.newest().number
        files = (
            [path]
            if path.is_file()
            else sorted(each for each in path.rglob("*.parquet") if _run_of(each.relative_to(self.path)) <= done)
        )
        return pa.concat_tables([schema.empty_table(), *(_rows_of(each, schema) for each in files)])

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
            _write(rows, self.path / "jobs" / f"day={day}" / name / part)
        for each in ("settings", "capacity", "lost"):
            if len(rows := getattr(made, each)):
                _write(rows, self.path / each / name / part)

    def finish(self, run: FolderRun, state: State) -> None:
        """Write what the next run goes on from, then that this one is done."""
        name = run_name(run.number)
        jobs = state.open.sort_by([("queue", "ascending"), ("shard_key", "ascending")])
        _write(jobs, self.path / "open" / name / "open.parquet")
        _write(state.present, self.path / "present" / name / "present.parquet")
        kept = self.path / "state" / name
        _write(state.letters, kept / "letters.parquet")
        _write(state.controls, kept / "controls.parquet")
        _write(bucket_table(state.buckets), kept / "buckets.parquet")
        done = self.path / "runs" / f"{run.number:012d}.json"
        done.parent.mkdir(exist_ok=True)
        draft = done.with_suffix(".new")
        draft.write_text(json.dumps(run.fields()))
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(done)
        self._forget(run.number)

    def _forget(self, number: int) -> None:
        """Remove what earlier runs wrote anew, but for the one before."""
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


def _run_of(path: Path) -> int:
    """Return the number of the run that made a file, by its path in the folder."""
    return next((int(each[4:]) for each in path.parts if each.startswith("run=") and each[4:].isdecimal()), -1)


def _rows_of(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(path, partitioning=None).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:  # how PyArrow tells damage
        raise ConfigError(f"{path} is no table of jobs, or is damaged: {str(error)[:200]}") from error


def _write(table: pa.Table, path: Path) -> None:
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    pq.write_table(table, draft, compression="zstd")
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # the run that says it is done must not outlive its rows
    draft.rename(path)
