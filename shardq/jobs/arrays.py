"""Columns of Arrow as arrays of numpy, and back: times are whole ms, and what is null is `NONE`."""

from __future__ import annotations

from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.schema import TIME

NONE: Final = -1


def whole(column: Any) -> Any:
    """Return a column of whole numbers."""
    return column.cast(pa.int64()).fill_null(NONE).to_numpy(zero_copy_only=False)


def ms_of(column: Any) -> Any:
    """Return a column of times in ms."""
    found = column.cast(pa.int64()).fill_null(NONE).to_numpy(zero_copy_only=False)
    return np.where(found < 0, NONE, found // 1000)


def times_of(ms: Any) -> pa.Array:
    """Return a column of times."""
    return pa.array(np.maximum(ms, 0) * 1000, mask=ms < 0).cast(TIME)


def scaled(column: Any, by: float) -> Any:
    """Return a column of decimals as whole numbers of a smaller unit, such as seconds by 1000 as ms."""
    return np.rint(column.fill_null(NONE / by).to_numpy(zero_copy_only=False) * by).astype(np.int64)


def one(column: Any) -> pa.Array:
    """Return a column of a table in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def numbered(*columns: Any) -> Any:
    """Return a number for each row, the same where all of these columns are the same."""
    found: Any = 0
    for each in columns:
        encoded = one(each).dictionary_encode()
        found = found * (len(encoded.dictionary) + 1) + encoded.indices.fill_null(NONE).to_numpy(zero_copy_only=False)
    return found


def taken(column: Any, at: Any) -> pa.Array:
    """Return the rows *at* of a column, null where that is below 0."""
    return one(column).take(pa.array(np.maximum(at, 0), mask=at < 0))


def is_null(column: Any) -> Any:
    """Return which rows are null."""
    return pc.is_null(one(column)).to_numpy(zero_copy_only=False)
