"""However many runs add to a folder, it has few files, and at each moment the rows that were added."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardq.jobs import compacting
from shardq.jobs.compacting import compact
from shardq.jobs.folder import FolderRun, TableFolder
from shardq.jobs.schema import CAPACITY, JOBS, LOST, SETTINGS
from shardq.jobs.step import MadeJobs, State
from shardq.jobs.tables import RunTables
from shardq.jobs.writing import write_file
from shardq.reports.folder import Files

BEGAN = 1_795_996_800
"""2026-11-30 00:00 UTC."""
STEP = 6 * 3_600
MANY = 7
"""Runs: four on the first day, three on the second."""
FEW = 2


def run(folder: TableFolder, number: int, at: float) -> None:
    """One run, in which a job ended and something was set."""
    ended, name = datetime.fromtimestamp(at, UTC), f"{number}-0"
    row = {"queue": "q", "queue_id": "1", "message_id": name, "redriven": 0, "shard_key": f"t{number % 3}"}
    jobs = pa.Table.from_pylist([{**dict.fromkeys(JOBS.names), **row, "ended_at": ended}], schema=JOBS)
    told: dict[str, Any] = {
        **dict.fromkeys(SETTINGS.names),
        "queue": "q",
        "kind": "weighted",
        "at": ended,
        "values": [],
    }
    settings = pa.Table.from_pylist([told], schema=SETTINGS)
    before = folder.newest()
    folder.begin(number)
    folder.add(number, 0, MadeJobs(jobs, settings, CAPACITY.empty_table(), LOST.empty_table()))
    queues = {"q": {"id": "1", "points": [number], "upto": round(at * 1000)}}
    folder.finish(FolderRun(before.number, queues).done(number, State()), State())


def ids(tables: RunTables | TableFolder) -> list[str]:
    return sorted(tables.table("jobs")["message_id"].to_pylist(), key=lambda each: int(each.partition("-")[0]))


def first_ids(count: int) -> list[str]:
    return [f"{number}-0" for number in range(count)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of runs, of which none are merged."""
    folder = TableFolder(tmp_path_factory.mktemp("jobs") / "whole")
    for number in range(MANY):
        run(folder, number, BEGAN + number * STEP)
    return folder.path


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> TableFolder:
    """The same, for one test."""
    return TableFolder(Path(shutil.copytree(whole, tmp_path / "jobs")))


def test_a_folder_of_many_runs_has_few_files_and_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", FEW)
    folder = TableFolder(tmp_path)
    for number in range(MANY):
        run(folder, number, BEGAN + number * STEP)
        assert ids(folder) == first_ids(number + 1)
        assert len(folder.table("settings")) == number + 1
    today = {f"run={number:012d}" for number in range(4, MANY)}  # a day that goes on is left as it is
    assert {each.name for each in folder.path.glob("jobs/day=2026-12-01/*")} == today
    assert len([*folder.path.glob("jobs/day=2026-11-30/run=*")]) == 1
    assert len([*folder.path.glob("settings/run=*")]) <= FEW + 1
    assert len([*folder.path.glob("runs/*")]) == 2


def test_readers_of_the_run_before_see_what_it_saw(folder: TableFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", FEW)
    compact(folder.path, MANY - 1, "2026-12-31")
    assert ids(RunTables(folder.path, MANY - 2)) == first_ids(MANY - 1)
    with pytest.raises(FileNotFoundError):
        RunTables(folder.path, 3).table("settings")


def test_reports_read_each_row_once(folder: TableFolder) -> None:
    files = Files(folder.path).of("jobs")
    assert sum(pq.read_metadata(each).num_rows for each in files) == MANY


class Killed(BaseException):
    """The end of a process, which no handler of errors sees."""


def killing(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill the process at a step: before it writes, before it renames, or when it has removed a part of a folder."""
    left = step

    def counted(change: Callable[..., Any], partly: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def changed(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                if partly is not None:
                    partly(*args)
                raise Killed
            return change(*args, **more)

        return changed

    def remove_a_file(path: Path) -> None:
        for each in [*path.glob("*.parquet")][:1]:
            each.unlink()

    with monkeypatch.context() as patched:
        patched.setattr(compacting, "write_file", counted(write_file))
        patched.setattr(Path, "rename", counted(Path.rename))
        rmtree = counted(shutil.rmtree, lambda path, *_: remove_a_file(path))
        patched.setattr(shutil, "rmtree", lambda path, **more: rmtree(path, **more) if path.exists() else None)
        yield


@pytest.mark.runs_in("test-all")
def test_killed_at_any_step_it_has_each_row_once_and_the_next_run_ends_it(
    folder: TableFolder, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", 1)
    step, is_killed = 0, True
    while is_killed:
        shutil.rmtree(folder.path)
        shutil.copytree(whole, folder.path)
        killed = killing(step, monkeypatch)
        next(killed)
        try:
            compact(folder.path, MANY - 1, "2026-12-31")
            is_killed = False
        except Killed:
            pass
        next(killed, None)
        for number in (MANY - 1, MANY - 2):
            assert ids(RunTables(folder.path, number)) == first_ids(number + 1), step
        assert len(folder.table("settings")) == MANY
        compact(folder.path, MANY - 1, "2026-12-31")
        assert ids(folder) == first_ids(MANY)
        assert len([*folder.path.glob("jobs/day=2026-11-30/*")]) == 1  # nothing is left of what was merged
        step += 1
    assert step > 10


def test_rows_of_a_merged_day_lie_as_those_of_a_run_do(folder: TableFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", 1)
    compact(folder.path, MANY - 1, "2026-12-31")
    [merged] = folder.path.glob("jobs/day=2026-11-30/*/*.parquet")
    keys = pq.read_table(merged, partitioning=None)["shard_key"].to_pylist()
    assert keys == sorted(keys)
    monkeypatch.setattr(compacting, "MAX_ROWS", 2)
    compact(folder.path, MANY, "2026-12-31")
    assert ids(folder) == first_ids(MANY)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the names of open files, as Linux tells them")
def test_the_disk_knows_a_merged_folder_before_what_it_covers_goes(
    folder: TableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "MAX_RUNS", FEW)
    synced: dict[Path, set[str]] = {}
    sync = os.fsync

    def told(opened: int) -> None:
        path = Path(f"/proc/self/fd/{opened}").resolve()
        if path.is_dir():
            synced[path] = {each.name for each in path.iterdir()}
        sync(opened)

    monkeypatch.setattr("shardq.files.os.fsync", told)
    day = next(iter(sorted(folder.path.glob("jobs/day=*"))))
    before = {each.name for each in day.iterdir()}
    compact(folder.path, MANY - 1, "2026-12-01")
    [merged] = [each.name for each in day.iterdir() if each.name not in before]
    assert synced[day] == before | {merged}
    assert synced[day / compacting.DRAFT] >= {"part-00000.parquet"}


def test_new_folders_of_a_run_are_synced_into_those_that_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def told(path: Path) -> None:
        synced.append((path.name, path.is_dir()))

    monkeypatch.setattr("shardq.files._sync_folder", told)
    write_file(SETTINGS.empty_table(), tmp_path / "jobs" / "day=1" / "run=1" / "part.parquet")
    assert synced == [(tmp_path.name, True), ("jobs", True), ("day=1", True), ("run=1", True)]
