"""The reports by name, and how one is made of a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from shardq.jobs.tables import steady
from shardq.model.wording import plural
from shardq.reports import cost, fair, noisy, slo, used
from shardq.reports.folder import Files
from shardq.reports.options import Options
from shardq.reports.page import page
from shardq.reports.tables import ReportSpan, Tables
from shardq.reports.times import moment
from shardq.reports.told import Told

REPORTS: Final[Mapping[str, Callable[[Tables, Options], Told]]] = MappingProxyType(
    {"used": used.report, "fair": fair.report, "slo": slo.report, "cost": cost.report, "noisy": noisy.report}
)
BEFORE: Final = frozenset({"noisy"})
"""Reports that also look at what was before their time."""


class MadeReport(NamedTuple):
    """A report that was made, and the time that it is of."""

    told: Told
    span: ReportSpan

    @property
    def time(self) -> str:
        """The time that it is of, for people."""
        return f"{moment(self.span.since)} to {moment(self.span.until)} UTC"

    @property
    def html(self) -> str:
        """A file of HTML."""
        return page(self.told, self.time)


def made(
    name: str, folder: Path, *, since: float | None = None, until: float | None = None, options: Options | None = None
) -> MadeReport:
    """Make the report called *name* of the tables in a folder, of all times or from *since* until before *until*."""
    return steady(lambda: _made(name, folder, since, until, options or Options()))


def _made(name: str, folder: Path, since: float | None, until: float | None, options: Options) -> MadeReport:
    tables = Tables(Files(folder), since, until, before=name in BEFORE)
    try:
        told = REPORTS[name](tables, options)
        return MadeReport(replace(told, remarks=(*told.remarks, *_lost(tables))), tables.span)
    finally:
        tables.close()


def _lost(tables: Tables) -> list[str]:
    """The warning where the tables are not whole."""
    [found] = tables.rows("lost")
    if not found["events"]:
        return []
    return [f"{plural(int(found['events']), 'event')} of this time are missing in the journal, so some jobs are, too."]
