"""The history of a queue, from a folder of the tables of jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "what-if"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.errors import ConfigError
from shardq.jobs.folder import TableFolder
from shardq.whatif.history import History, history_of

OF_JOBS: Final = [
    "shard_key", "task", "written_at", "ready_at", "first_at", "last_at", "ended_at", "attempts", "uncounted", "wait_s",
    "held_s", "ran_s",
]  # fmt: skip
"""The columns that a history is made of."""


def queues_of(path: Path) -> list[str]:
    """Return the names of the queues of a folder of jobs. ConfigError if it is none."""
    folder = _folder(path)
    names = {each for table in (folder.table("jobs"), folder.open()) for each in pc.unique(table["queue"]).to_pylist()}
    return sorted(names)


def read_history(path: Path, queue: str, since: float | None = None, until: float | None = None) -> History | None:
    """Return the history of *queue*: of jobs that were written before *until*, and still waited at *since*.

    Both are Unix seconds. None if there is no such job. ConfigError if *path* is no folder of jobs.
    """
    folder = _folder(path)
    jobs = pa.concat_tables([_of(each, queue).select(OF_JOBS) for each in (folder.table("jobs"), folder.open())])
    rows = jobs.filter(_within(jobs, since, until)).to_pylist()
    settings = _of(folder.table("settings"), queue).to_pylist()
    capacity = [row for each in (folder.table("capacity"), folder.present()) for row in _of(each, queue).to_pylist()]
    return history_of(queue, rows, settings, capacity, since)


def _folder(path: Path) -> TableFolder:
    folder = TableFolder(path)
    if not path.is_dir() or folder.newest().number < 0:
        raise ConfigError(f"there are no tables of jobs in {str(path)!r}: shardq jobs makes them")
    return folder


def _of(table: Any, queue: str) -> Any:
    return table.filter(pc.equal(table["queue"], queue))


def _within(jobs: Any, since: float | None, until: float | None) -> Any:
    """Say which jobs were written before *until*, and had not begun at *since*."""
    kept = pc.is_valid(jobs["written_at"])
    if until is not None:
        kept = pc.and_(kept, pc.less(jobs["written_at"], _time(until)))
    if since is not None:
        began = pc.coalesce(jobs["first_at"], jobs["ended_at"])
        kept = pc.and_(kept, pc.fill_null(pc.greater_equal(began, _time(since)), True))
    return kept


def _time(seconds: float) -> Any:
    return pa.scalar(datetime.fromtimestamp(seconds, UTC), pa.timestamp("us", tz="UTC"))
