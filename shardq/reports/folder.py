"""Which files of a folder of tables a report reads. `shardq.jobs.schema` says how the folder is laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from shardq.jobs.folder import DAY, TableFolder
from shardq.jobs.tables import run_folders, run_name
from shardq.reports.errors import NoTables

STANDING: Final = ("open", "present")
"""Tables whose newest run counts alone."""


class Files:
    """The files of a folder of tables when its newest `run` was done. NoTables if it is none, or none is done yet."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise NoTables(f"there is no folder {str(path)!r}: shardq jobs makes one")
        self.run = TableFolder(path).newest()
        self.path = path
        if self.run.number < 0:
            raise NoTables(f"folder {str(path)!r} has no tables of jobs: shardq jobs makes them")

    def of(self, table: str, since: float | None = None) -> Sequence[str]:
        """The files of a table that count; of jobs those that may have ended at *since* or later."""
        number = self.run.number
        if table in STANDING:
            return _files([self.path / table / run_name(number)])
        parents = [self.path / table]
        if table == "jobs":
            parents = [day for day in self.path.glob("jobs/day=*") if _is_within(day, since)]
        return _files(run for parent in parents for run in run_folders(parent, number))


def _files(folders: Iterable[Path]) -> Sequence[str]:
    return sorted(str(file) for folder in folders for file in folder.glob("*.parquet"))


def _is_within(day: Path, since: float | None) -> bool:
    """Whether a day ends after *since*. A folder that is no day is read, too: its name is not ours."""
    try:
        begins = datetime.strptime(day.name.removeprefix("day="), DAY).replace(tzinfo=UTC)
    except ValueError:
        return True
    return since is None or (begins + timedelta(days=1)).timestamp() > since
