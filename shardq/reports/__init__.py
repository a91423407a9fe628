"""Reports on what queues did: each is one query on the table of jobs, with a verdict, tables and a picture.

Begin at `catalog`, which lists the reports. A report is a text of SQL in `sql/`; `tables` runs it by DuckDB over the
folder that `shardq jobs` makes, a module of its name says what the rows mean, and `page` makes a file of HTML of that.
Spark is not needed; the same texts run on Spark (docs/reports.md).
"""

from __future__ import annotations

from shardq.extras import extra

with extra("reports", "a report"):
    import duckdb as _duckdb  # noqa: F401 (said here, before what needs only the table of jobs)
    import pyarrow as _pyarrow  # noqa: F401
