"""The folders of many runs as one, so that a folder of jobs has few files however many runs add to it.

Merged are days before the newest, once more than `MAX_RUNS` runs have added to one; and the other tables to which runs
add. The merged rows are written to a draft, which is put in place by renaming it to `run=…3-…9`, and then the folders
go that it covers. Readers leave these out as soon as it is there, and the next run removes what a killed one has left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa

from shardq.files import put_in_place
from shardq.jobs.ranges import ranges_of, uncovered
from shardq.jobs.schema import JOBS
from shardq.jobs.step import ORDER
from shardq.jobs.tables import TABLES, rows_of, run_folders
from shardq.jobs.writing import write_file

MAX_RUNS: Final = 16
"""More folders of runs than these are merged."""
MAX_ROWS: Final = 2_000_000
"""Rows of a merged file, about: some 500 MB of memory."""
DRAFT: Final = "_merged"
"""The name of a folder that is not whole. Readers heed only those of runs."""


def compact(folder: Path, number: int, today: str) -> None:
    """Merge what runs have added before run *number*, the newest: its readers, and those of the one before, see that.

    Days are merged that are before *today*.
    """
    days = [each for each in sorted(folder.glob("jobs/day=*")) if each.name.removeprefix("day=") < today]
    for parent in (*days, *(folder / name for name in TABLES if name != "jobs")):
        if parent.is_dir():
            _sweep(parent)
            runs = run_folders(parent, number - 1)
            if len(runs) > MAX_RUNS:
                _merge(runs, TABLES["jobs" if parent in days else parent.name])


def _merge(runs: Sequence[Path], schema: pa.Schema) -> None:
    parent = runs[0].parent
    spans = ranges_of("run", [each.name for each in runs]).values()
    draft = parent / DRAFT
    for part, rows in enumerate(_rows(runs, schema)):
        write_file(rows.sort_by(ORDER) if schema is JOBS else rows, draft / f"part-{part:05d}.parquet")
    merged = f"run={min(low for low, _ in spans):012d}-{max(high for _, high in spans):012d}"
    put_in_place(draft, parent / merged)  # before what it covers goes
    _sweep(parent)


def _rows(runs: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of runs, about `MAX_ROWS` at a time."""
    found = [schema.empty_table()]
    for each in runs:
        for file in sorted(each.glob("*.parquet")):
            found.append(rows_of(file, schema))
            if sum(map(len, found)) >= MAX_ROWS:
                yield pa.concat_tables(found)
                found = []
    if found:
        yield pa.concat_tables(found)


def _sweep(parent: Path) -> None:
    """Remove the folders that a merged one covers, and what was not merged to the end."""
    ranges = ranges_of("run", [each.name for each in parent.iterdir()])
    for name in {*ranges, DRAFT} - {*uncovered(ranges)}:
        shutil.rmtree(parent / name, ignore_errors=True)
