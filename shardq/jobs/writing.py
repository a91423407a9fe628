"""Files that are written whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.parquet as pq

from shardq.files import DRAFT, make_folder, put_in_place, write_whole


def write_file(table: pa.Table, path: Path) -> None:
    """Write the rows of *table* to a file of Parquet, over one that may be there."""
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}{DRAFT}")
    pq.write_table(table, draft, compression="zstd")
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # the run that says it is done must not outlive its rows
    put_in_place(draft, path)


def write_text(text: str, path: Path) -> None:
    """Write a text file, over one that may be there."""
    make_folder(path.parent)
    write_whole(path, text)
