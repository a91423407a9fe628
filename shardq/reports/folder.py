"""Which files of a folder of tables a report reads. `shardq.jobs.schema` says how the folder is laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from shardq.jobs.folder import DAY, TableFolder, run_name
from shardq.reports.errors import NoTables

STANDING: Final = ("open", "present")
"""Tables whose newest run counts alone."""


class Files:
    """The files of a folder of tables. NoTables if it is none, or if no run was done yet."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise NoTables(f"there is no folder {str(path)!r}: shardq jobs makes one")
        self.newest = run_name(TableFolder(path).newest().number)
        self.path = path
        if self.newest == run_name(-1):
            raise NoTables(f"folder {str(path)!r} has no tables of jobs: shardq jobs makes them")

    def of(self, table: str, since: float | None = None) -> Sequence[str]:
        """The files of a table that count; of jobs those that may have ended at *since* or later."""
        if table != "jobs":
            return self._in(run for run in self.path.glob(f"{table}/run=*") if self._counts(table, run.name))
        days = [day for day in self.path.glob("jobs/day=*") if _is_within(day, since)]
        return self._in(run for day in days for run in day.glob("run=*") if self._counts(table, run.name))

    def _counts(self, table: str, run: str) -> bool:
        return run == self.newest if table in STANDING else run <= self.newest

    def _in(self, folders: Iterable[Path]) -> Sequence[str]:
        return sorted(str(file) for folder in folders for file in folder.glob("*.parquet"))


def _is_within(day: Path, since: float | None) -> bool:
    """Whether a day ends after *since*. A folder that is no day is read, too: its name is not ours."""
    try:
        begins = datetime.strptime(day.name.removeprefix("day="), DAY).replace(tzinfo=UTC)
    except ValueError:
        return True
    return since is None or (begins + timedelta(days=1)).timestamp() > since
