"""Tenants that are noisier than usual: the last day of each beside its own last weeks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.model.wording import number, plural, share, span
from shardq.reports.names import of_queue
from shardq.reports.options import Options
from shardq.reports.pictures import Bar, bars
from shardq.reports.tables import Row, Tables
from shardq.reports.told import Table, Told

TITLE: Final = "Tenants that are noisier than usual"
SCORE: Final = 5.0
"""Deviations from the usual, beyond what all did more, from which on a tenant is noisy."""
PEAK_FACTOR: Final = 1.5
"""A noisy tenant has also more than the most of its earlier days times this factor."""
MIN_SHARE: Final = 0.01
"""A noisy tenant has also at least this share of the work of its queue."""
DAYS: Final = 7
"""Days before that must be known: nobody knows what is usual for a tenant that is new."""
COLUMNS: Final = ("tenant", "work", "usual", "times", "jobs", "of queue")


def report(tables: Tables, options: Options) -> Told:
    """Tell who is noisier than usual."""
    rows = tables.rows("noisy", weeks=float(options.weeks))
    noisy = [row for row in rows if _is_noisy(row)]
    new = [row for row in rows if row["days"] < DAYS]
    shown = [Table("Beside their usual day", COLUMNS, [_cells(row, rows) for row in rows[: options.rows]])]
    return Told(TITLE, _verdict(noisy, rows, new), bool(noisy), shown, _picture(rows), rows, _remarks(rows, new))


def _is_noisy(row: Row) -> bool:
    return bool(
        row["days"] >= DAYS
        and row["score"] > SCORE
        and row["seconds"] > PEAK_FACTOR * row["peak_s"]
        and (row["share"] or 0.0) >= MIN_SHARE
    )


def _verdict(noisy: Sequence[Row], rows: Sequence[Row], new: Sequence[Row]) -> str:
    if not noisy:
        if len(new) == len(rows):
            return f"The usual level is not known yet: nobody wrote for {DAYS} days before the last one."
        return "Nobody was noisier than usual."
    first = max(noisy, key=lambda row: float(row["seconds"]))
    more = plural(len(noisy) - 1, "other was", "others were")
    more = f" {more}, too." if len(noisy) > 1 else ""
    return (
        f"{of_queue(first, rows)(first['tenant'])} was noisier than usual: {span(first['seconds'])} of work "
        f"in the last day, where {span(first['usual_s'])} is usual.{more}"
    )


def _remarks(rows: Sequence[Row], new: Sequence[Row]) -> list[str]:
    found = []
    if new and len(new) < len(rows):
        found.append(f"The usual level is not known of {plural(len(new), 'tenant')} that came in the last {DAYS} days.")
    most = max((row["all_times"] for row in rows), default=1.0)
    if most > 1.2:
        found.append(f"All tenants together did {most:.1f} times as much as usual, which counts for nobody.")
    return found


def _times(row: Row) -> float:
    return float(row["seconds"] / row["usual_s"]) if row["usual_s"] else float(row["times"])


def _cells(row: Row, rows: Sequence[Row]) -> list[str]:
    return [
        of_queue(row, rows)(row["tenant"]), span(row["seconds"]), span(row["usual_s"]), f"{_times(row):,.1f}",
        number(row["jobs"]), share(row["share"] or 0.0),
    ]  # fmt: skip


def _picture(rows: Sequence[Row]) -> str:
    found = [
        Bar(of_queue(row, rows)(row["tenant"]), row["seconds"], f"{span(row['seconds'])}, usual {span(row['usual_s'])}",
            row["usual_s"], _is_noisy(row))
        for row in rows
    ]  # fmt: skip
    return bars("Work of the last day; the mark is what is usual", found)
