"""The tables of a folder as they were when one run was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

from shardq.errors import ConfigError
from shardq.files import MAX_SHOWN
from shardq.jobs.ranges import ranges_of, uncovered
from shardq.jobs.schema import CAPACITY, JOBS, LOST, OPEN, SETTINGS

T = TypeVar("T")
TABLES: Final = {"jobs": JOBS, "settings": SETTINGS, "capacity": CAPACITY, "lost": LOST}
"""The tables that runs add to."""
DAMAGE: Final = (pa.ArrowException, OSError, KeyError, UnicodeDecodeError)
"""The errors of PyArrow for a file that is damaged, or lacks a column."""
TRIES: Final = 5
"""How often tables are read that others compact or remove meanwhile."""
LAST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, since the epoch: no Python has a later time."""


def run_name(number: int) -> str:
    """Return the name of the folder with the rows of a run."""
    return f"run={number:012d}"


def run_folders(parent: Path, number: int) -> list[Path]:
    """Return the folders of all runs in *parent* that were done when run *number* was, in their order.

    FileNotFoundError if what that run saw is there no more.
    """
    before, names = None, _names(parent)
    while names != before:  # else some of them may have been compacted while they were listed
        before, names = names, _names(parent)
    ranges = ranges_of("run", names)
    if any(low <= number < high for low, high in ranges.values()):
        raise FileNotFoundError(f"what run {number} has seen in {parent} was compacted with later runs")
    return [parent / each for each in uncovered({name: span for name, span in ranges.items() if span[1] <= number})]


def _names(parent: Path) -> set[str]:
    return {each.name for each in parent.iterdir()} if parent.is_dir() else set()


def steady(read: Callable[[], T]) -> T:
    """Return what *read* does, once more while files are removed that it reads, as a run does which compacts them."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables in the folder *path* when run *number* was done. A read returns these columns, or all.

    FileNotFoundError if others have removed what that run saw. ConfigError for what is no table of jobs.
    """

    path: Path
    number: int

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one of the tables jobs, settings, capacity and lost, of all runs."""
        parents = sorted(self.path.glob("jobs/day=*")) if name == "jobs" else [self.path / name]
        folders = [each for parent in parents for each in run_folders(parent, self.number)]
        return _read((file for each in folders for file in sorted(each.glob("*.parquet"))), TABLES[name], columns)

    def open(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the jobs that had not ended."""
        return self._own("open", OPEN, columns)

    def present(self) -> pa.Table:
        """Return the workers that were there."""
        return self._own("present", CAPACITY)

    def kept(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return what the run left of this *name* for the next one."""
        return self._own("state", schema, name=f"{name}.parquet")

    def _own(self, table: str, schema: pa.Schema, columns: Sequence[str] | None = None, name: str = "") -> pa.Table:
        if self.number < 0:
            return _read((), schema, columns)
        path = self.path / table / run_name(self.number) / name
        if not path.exists():
            raise FileNotFoundError(f"{path} is there no more")
        return _read(
            sorted(path.glob("*.parquet")) if path.is_dir() else (path,), schema, columns
        )  # Spark makes folders


def rows_of(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of one file, with all columns of *schema* or these. ConfigError if it has others."""
    names = schema.names if columns is None else columns
    try:
        found = pq.read_table(path, partitioning=None, columns=[*names]).select(names)
        found = found.cast(pa.schema([schema.field(each) for each in names]))
    except FileNotFoundError:  # others have compacted what that run saw
        raise
    except DAMAGE as error:
        raise ConfigError(f"{path} is no table of jobs, or is damaged: {in_a_line(error)}") from error
    for name in names:
        if not _is_possible(found[name]):
            raise ConfigError(f"{path} is no table of jobs, or is damaged: {name} has what is no time, or no number")
    return found


def check_names(path: Path, schema: pa.Schema) -> None:
    """ConfigError if a file lacks a column of *schema*, or is none of Parquet."""
    try:
        lacking = {*schema.names} - {*pq.read_schema(path).names}
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ConfigError(f"{path} is no table of jobs, or is damaged: {in_a_line(error)}") from error
    if lacking:
        raise ConfigError(f"{path} is no table of jobs, or is damaged: it has no column {min(lacking)}")


def in_a_line(error: Exception) -> str:
    """Return what an error of another library says, in one line of some words."""
    return " ".join(str(error).split())[:MAX_SHOWN]


def _read(paths: Iterable[Path], schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    kinds = schema if columns is None else pa.schema([schema.field(each) for each in columns])
    return pa.concat_tables([kinds.empty_table(), *(rows_of(each, schema, columns) for each in paths)])


def _is_possible(column: pa.ChunkedArray) -> bool:
    """Whether a column has no times that nothing else has, and neither NaN nor an infinity."""
    if pa.types.is_timestamp(column.type):
        ends = pc.min_max(column.cast(pa.int64()))
        return not ends["max"].is_valid or (ends["min"].as_py() >= 0 and ends["max"].as_py() <= LAST_US)
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
