"""The folder of tables that `shardq jobs` makes: which of its files count. `shardq.jobs.schema` says how it is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from shardq.reports.errors import NoTables

STANDING: Final = ("open", "present")
"""Tables of which the newest run counts alone."""
KINDS: Final = ("jobs", *STANDING, "settings", "capacity", "lost")


class Folder:
    """A folder of tables. NoTables if it is none, or if no run was done yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise NoTables(f"there is no folder {str(path)!r}: shardq jobs makes one")
        self.runs = sorted(each.stem for each in path.glob("runs/*.json"))
        if not self.runs:
            raise NoTables(f"folder {str(path)!r} has no tables of jobs: shardq jobs makes them")

    def files(self, kind: str, since: float | None = None) -> Sequence[str]:
        """The Parquet files of a table that count; of jobs those that may have ended at *since* or later."""
        if kind == "jobs":
            days = [day for day in sorted(self.path.glob("jobs/day=*")) if _is_within(day, since)]
            return self._of_runs([run for day in days for run in day.glob("run=*")])
        runs = self.path.glob(f"{kind}/run=*")
        newest = f"run={self.runs[-1]}"
        return self._of_runs([run for run in runs if kind not in STANDING or run.name == newest])

    def _of_runs(self, folders: Sequence[Path]) -> Sequence[str]:
        done = {f"run={run}" for run in self.runs}
        return sorted(str(file) for folder in folders if folder.name in done for file in folder.glob("*.parquet"))


def _is_within(day: Path, since: float | None) -> bool:
    """Whether a day ends after *since*. What is no day is read, too: its name is not ours."""
    try:
        ends = datetime.strptime(day.name.removeprefix("day="), "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
    except ValueError:
        return True
    return since is None or ends.timestamp() > since
