"""The views on which reports are queries, and DuckDB, which runs them.

A view has the columns of its table (`shardq.jobs.schema`), with times as seconds since the epoch, so that a text of SQL
needs no function of times and means the same everywhere. Columns of settings that are words of SQL have other names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardq.errors import ConfigError
from shardq.extras import extra
from shardq.files import MAX_SHOWN
from shardq.reports.errors import NoTables
from shardq.reports.folder import Files

with extra("reports", "a report"):
    import duckdb
    import pyarrow

from shardq.jobs.schema import CAPACITY, JOBS, LOST, SETTINGS
from shardq.jobs.tables import LAST_US, check_names

Row = Mapping[str, Any]

RENAMED: Final = {"at": "set_at", "key": "named"}
"""Columns of settings that have another name in the view."""
LEFT_OUT: Final = frozenset({"values"})
"""Columns that are in no view."""
MAX_NUMBER: Final = 1e15
"""No seconds or weights are more; their sums stay finite."""
TIMES: Final = "TIMESTAMPTZ"
TYPES: Final = {
    "string": "VARCHAR", "bool": "BOOLEAN", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE",
    "timestamp[us, tz=UTC]": TIMES,
}  # fmt: skip
"""The types of columns, as DuckDB calls them."""
RANGES: Final = {TIMES: f"{{}} BETWEEN 0 AND {LAST_US / 1e6:.0f}", "DOUBLE": f"abs({{}}) <= {MAX_NUMBER:.0f}"}
"""The range of each type: files of other programs may have NaN, and years that no Python knows."""


DAMAGE: Final = (duckdb.Error, RuntimeError, UnicodeDecodeError)
"""The errors of DuckDB for a damaged file: the last two if a name in it is no text."""


class ReportSpan(NamedTuple):
    """The span of a report: from `since` until before `until`, in seconds since the epoch."""

    since: float
    until: float


class Tables:
    """A connection of DuckDB with the views of a folder: jobs, settings, capacity, lost, names and asked.

    They have jobs that ended at *since* or later, or have not ended; with *before* also those that ended earlier.
    """

    def __init__(
        self, files: Files, since: float | None = None, until: float | None = None, *, before: bool = False
    ) -> None:
        self._link = duckdb.connect(config={"autoload_known_extensions": False, "autoinstall_known_extensions": False})
        self._files, self._since = files, None if before else since
        self._read: list[str] = []
        self._view("jobs", JOBS, ("jobs", "open"))
        self._view("settings", SETTINGS, ("settings",))
        self._view("capacity", CAPACITY, ("capacity", "present"))
        self._view("lost", LOST, ("lost",))
        self._link.execute("CREATE VIEW names AS SELECT queue_id, max(queue) AS queue FROM jobs GROUP BY queue_id")
        self.span = self._spanned(since, until)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def rows(self, report: str, **asked: float | str) -> Sequence[Row]:
        """Run the text of a report; its `asked` view has one row with the span and what else is *asked*."""
        columns = {"since": self.span.since, "until": self.span.until, **asked}
        self._link.register("asked", pyarrow.Table.from_pylist([columns]))
        return self.query(text_of(report))

    def query(self, text: str) -> Sequence[Row]:
        """Run a query on the views."""
        try:
            found = self._link.execute(text)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except DAMAGE as error:
            raise self._said(error) from error

    def _said(self, error: Exception) -> Exception:
        """Return what is raised for an error of DuckDB: in one line, as it has many with the text of the query."""
        if isinstance(error, duckdb.IOException) and any(not Path(each).exists() for each in self._read):
            return FileNotFoundError("files were compacted or removed while they were read")
        first = str(error).partition("LINE ")[0]
        return ConfigError(
            f"what is in {self._files.path} is no table of jobs, or is damaged: {' '.join(first.split())[:MAX_SHOWN]}"
        )

    def _view(self, name: str, schema: Any, kinds: Sequence[str]) -> None:
        read = [path for kind in kinds for path in self._files.of(kind, self._since if kind == "jobs" else None)]
        columns = ", ".join(filter(None, map(_column, schema)))
        for each in read:
            check_names(Path(each), schema)
        try:
            if read:
                found = self._link.read_parquet(read, union_by_name=True, hive_partitioning=False)
            else:
                found = self._link.from_arrow(schema.empty_table())
            found.project(columns).create_view(name)
            self._read += read
        except DAMAGE as error:
            raise self._said(error) from error

    def _spanned(self, since: float | None, until: float | None) -> ReportSpan:
        [seen] = self.query(
            "SELECT min(coalesce(written_at, first_at, ended_at)) AS first, "
            "max(greatest(coalesce(ended_at, written_at), coalesce(last_at, written_at))) AS last FROM jobs"
        )
        if seen["first"] is None:
            raise NoTables("the folder has no job" + ("" if since is None else " of that time"))
        last = max(seen["last"] + 0.001, self._files.run.upto)
        span = ReportSpan(seen["first"] if since is None else since, last if until is None else until)
        if span.until <= span.since:
            raise NoTables("no job is of that time: it ends before it begins")
        return span


def text_of(report: str) -> str:
    """The SQL of a report."""
    return files("shardq.reports").joinpath("sql", f"{report}.sql").read_text(encoding="utf-8")


def _column(field: Any) -> str:
    """How a view has a column: of the type that it must have, a time in seconds since the epoch. Others are refused."""
    if field.name in LEFT_OUT:
        return ""
    name, quoted, kind = RENAMED.get(field.name, field.name), f'"{field.name}"', TYPES[str(field.type)]
    value = f"epoch_us(CAST({quoted} AS {kind})) / 1e6" if kind == TIMES else f"CAST({quoted} AS {kind})"
    if kind not in RANGES:
        return f"{value} AS {name}"
    refused = f"error('{field.name} has what is no time, or no number')"
    return f"CASE WHEN {value} IS NULL OR {RANGES[kind].format(value)} THEN {value} ELSE {refused} END AS {name}"
