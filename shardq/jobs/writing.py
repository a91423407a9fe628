"""Files and folders that are written whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.parquet as pq


def write_file(table: pa.Table, path: Path) -> None:
    """Write the rows of *table* to a file of Parquet, over one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    pq.write_table(table, draft, compression="zstd")
    put_in_place(draft, path)


def write_text(text: str, path: Path) -> None:
    """Write a text file, over one that may be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    put_in_place(draft, path)


def put_in_place(draft: Path, path: Path) -> None:
    """Rename a file that is written. What says later that it is there must not outlive its bytes."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.rename(path)
