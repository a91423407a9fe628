"""The use by each tenant, task and plan: seconds of handlers, attempts and failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.model.wording import number, plural, share, span
from shardq.reports.names import of_queue
from shardq.reports.options import Options
from shardq.reports.pictures import Bar, bars
from shardq.reports.tables import Row, Tables
from shardq.reports.told import Table, Told

TITLE: Final = "Who used what"
KINDS: Final = {"tenant": "By tenant", "task": "By task", "plan": "By plan"}
COLUMNS: Final = ("time", "share", "jobs", "tries", "failed", "dead", "mean wait")


def report(tables: Tables, options: Options) -> Told:
    """Tell who used what."""
    rows = tables.rows("used")
    tenants = [row for row in rows if row["kind"] == "tenant"]
    total = sum(row["seconds"] for row in tenants)
    jobs = sum(row["jobs"] for row in tenants)
    verdict = "No job ended in this time."
    if tenants:
        first = tenants[0]
        verdict = (
            f"{plural(len(tenants), 'tenant')} used {span(total)} of handlers in {plural(jobs, 'job')}; "
            f"{of_queue(first, rows)(first['name'])} used {share(first['seconds'] / (total or 1.0))} of it."
        )
    shown = [
        Table(title, (kind, *COLUMNS), [_cells(row, rows, total) for row in _of(rows, kind)[: options.rows]])
        for kind, title in KINDS.items()
    ]
    lengths = [Bar(of_queue(row, rows)(row["name"]), row["seconds"], span(row["seconds"])) for row in tenants]
    return Told(TITLE, verdict, False, shown, bars("Time of handlers by tenant", lengths), rows)


def _of(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def _cells(row: Row, rows: Sequence[Row], total: float) -> list[str]:
    return [
        of_queue(row, rows)(row["name"]),
        span(row["seconds"]),
        share(row["seconds"] / (total or 1.0)),
        *(number(row[name]) for name in ("jobs", "attempts", "failed", "dead")),
        span(row["waited_s"] / row["jobs"]),
    ]
