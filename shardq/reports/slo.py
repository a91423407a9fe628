"""The service level objective: which share of jobs begins in time, and what is left of the error budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from shardq.model.wording import number, plural, span
from shardq.reports.names import named, of_queue, per_cent
from shardq.reports.options import Options
from shardq.reports.pictures import Stack, columns
from shardq.reports.tables import Row, Tables
from shardq.reports.told import Table, Told

TITLE: Final = "Service level objective"
HOUR: Final = 3600.0
MAX_COLUMNS: Final = 60
"""Columns of the picture."""
COLUMNS: Final = ("jobs", "late", "met", "burn rate", "budget left")


def report(tables: Tables, options: Options) -> Told:
    """Tell whether the objective was met."""
    rows = tables.rows("slo", objective=options.objective, within=options.within)
    queues, hours = _of(rows, "queue"), _of(rows, "hour")
    worst = sorted((row for row in _of(rows, "tenant") if row["late"]), key=lambda row: -row["late"])
    missed = [row for row in queues if row["met"] < options.objective]
    shown = [
        Table("By queue", ("queue", *COLUMNS), [[named(row["queue"]), *_cells(row)] for row in queues]),
        Table("Of late", ("last", *COLUMNS), [[_last(row, rows), *_cells(row)] for row in _of(rows, "last")]),
        Table(
            "Worst tenants", ("tenant", *COLUMNS),
            [[of_queue(row, rows)(row["name"]), *_cells(row)] for row in worst[: options.rows]],
        ),
    ]  # fmt: skip
    found = _columns(hours, 1 - options.objective)
    title = "Late jobs over time; the line is what the objective allows"
    picture = columns(title, found, ("late jobs of a hundred",), line=100 * (1 - options.objective), unit="%")
    return Told(TITLE, _verdict(queues, missed, options), bool(missed), shown, picture, rows)


def _of(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def _verdict(queues: Sequence[Row], missed: Sequence[Row], options: Options) -> str:
    if not queues:
        return "No job was to begin in this time."
    worst = min(queues, key=lambda row: float(row["met"]))
    which = f" of queue {worst['queue']}" if len(queues) > 1 else ""
    began = f"{per_cent(worst['met'])} of {plural(worst['jobs'], 'job')}{which} began within {span(options.within)}"
    if missed:
        return f"The objective of {per_cent(options.objective)} is missed: {began}."
    left = per_cent(max(0.0, worst["budget_left"]))
    return f"The objective of {per_cent(options.objective)} is met: {began}; {left} of the error budget is left."


def _cells(row: Row) -> list[str]:
    left = row["budget_left"]
    return [
        number(row["jobs"]), number(row["late"]), per_cent(row["met"]), f"{row['burn_rate']:,.2f}",
        per_cent(left) if left >= 0 else f"-{per_cent(-left)}",
    ]  # fmt: skip


def _last(row: Row, rows: Sequence[Row]) -> str:
    return of_queue(row, rows)(row["name"])


def _columns(hours: Sequence[Row], allowed: float) -> list[Stack]:
    """A column for each hour, or for several if there are many, over all queues together."""
    if not hours:
        return []
    first = min(row["begins"] for row in hours)
    step = HOUR * math.ceil((max(row["begins"] for row in hours) - first + HOUR) / HOUR / MAX_COLUMNS)
    jobs: Counter[float] = Counter()
    late: Counter[float] = Counter()
    for row in hours:
        begins = first + (row["begins"] - first) // step * step
        jobs[begins] += row["jobs"]
        late[begins] += row["late"]
    return [Stack(at, (100 * late[at] / count,), late[at] > allowed * count) for at, count in sorted(jobs.items())]
