"""The histories of queues, from a folder of the tables of jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "what-if"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.errors import ConfigError
from shardq.jobs.folder import TableFolder
from shardq.jobs.tables import steady
from shardq.whatif.history import History, history_of

COLUMNS: Final = [
    "queue", "shard_key", "task", "written_at", "ready_at", "first_at", "last_at", "ended_at", "attempts", "uncounted",
    "wait_s", "held_s", "ran_s",
]  # fmt: skip
"""The columns that a history is made of."""

HOUR: Final = 3_600.0
MAX_HOURS: Final = 24 * 31
"""Hours that are replayed apart."""


class Recorded(NamedTuple):
    """The record of all queues: their jobs, settings and workers."""

    jobs: pa.Table
    settings: pa.Table
    capacity: pa.Table

    @property
    def queues(self) -> list[str]:
        """The names of the queues."""
        return sorted(pc.unique(self.jobs["queue"]).to_pylist())

    def history(self, queue: str, since: float | None = None, until: float | None = None) -> History | None:
        """Return the history of *queue*: of jobs that were written before *until*, and still waited at *since*.

        Both are Unix seconds. None if there is no such job.
        """
        jobs = _of(self.jobs, queue)
        rows = jobs.filter(_within(jobs, since, until)).to_pylist()
        return history_of(
            queue, rows, _of(self.settings, queue).to_pylist(), _of(self.capacity, queue).to_pylist(), since
        )

    def hours(self, queue: str, since: float | None = None, until: float | None = None) -> dict[float, History]:
        """Return the history of each hour of the clock in which a job of *queue* was written or waited, by its begin.

        Jobs that still waited when an hour began are written then. ConfigError for more than `MAX_HOURS`.
        """
        jobs = _of(self.jobs, queue)
        written = pc.min_max(jobs.filter(_within(jobs, since, until))["written_at"])
        if not written["min"].is_valid:
            return {}
        first = max(written["min"].as_py().timestamp(), since or 0.0) // HOUR * HOUR
        last = written["max"].as_py().timestamp()
        if last - first > MAX_HOURS * HOUR:
            raise ConfigError(f"these are more than {MAX_HOURS} hours: name fewer with --since and --before")
        found: dict[float, History] = {}
        for begin in (first + HOUR * nth for nth in range(MAX_HOURS + 1)):
            end = begin + HOUR if until is None else min(until, begin + HOUR)
            if begin <= last and (history := self.history(queue, max(begin, since or begin), end)):
                found[begin] = history
        return found


def recorded(path: Path) -> Recorded:
    """Return what is in a folder of jobs, as one run left it. ConfigError if it is none."""
    return steady(lambda: _recorded(path))


def _recorded(path: Path) -> Recorded:
    folder = TableFolder(path)
    run = folder.newest()
    if not path.is_dir() or run.number < 0:
        raise ConfigError(f"there are no tables of jobs in {str(path)!r}: shardq jobs makes them")
    tables = folder.at(run)
    return Recorded(
        pa.concat_tables([tables.table("jobs", COLUMNS), tables.open(COLUMNS)]),
        tables.table("settings"),
        pa.concat_tables([tables.table("capacity"), tables.present()]),
    )


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
