"""Was it fair: between each two tenants that both had ready work that nothing blocked, against what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.model.wording import plural, short_number, span
from shardq.reports.names import named, of_queue
from shardq.reports.options import Options
from shardq.reports.pictures import Bar, bars
from shardq.reports.tables import Row, Tables
from shardq.reports.times import moment
from shardq.reports.told import Table, Told

TITLE: Final = "Was it fair"
PAIRS: Final = ("ahead", "behind", "by", "promised", "from", "after")
TENANTS: Final = ("tenant", "weight", "waited", "given meanwhile")


def report(tables: Tables, options: Options) -> Told:
    """Tell whether it was fair."""
    rows = tables.rows("fair")
    pairs = sorted((row for row in rows if row["kind"] == "pair"), key=_place)
    tenants = sorted((row for row in rows if row["kind"] == "tenant"), key=lambda row: -row["waited_s"])
    unfair = [row for row in pairs if _excess(row) > 0]
    shown = [
        Table("Tenants ahead of others", PAIRS, [_pair(row, rows) for row in pairs[: options.rows]], names=2),
        Table("Who waited", TENANTS, [_tenant(row, rows) for row in tenants[: options.rows]]),
    ]
    return Told(TITLE, _verdict(unfair, pairs, tenants), bool(unfair), shown, _picture(pairs, rows), rows)


def _place(row: Row) -> tuple[float, float]:
    """Where a pair stands: those that were not fair first, the worst of them before others; then who was most ahead."""
    return -max(0.0, _excess(row)), -float(row["ahead_s"])


def _excess(row: Row) -> float:
    """By how many seconds one is ahead more than is promised."""
    return float(row["ahead_s"] - row["bound_s"])


def _verdict(unfair: Sequence[Row], pairs: Sequence[Row], tenants: Sequence[Row]) -> str:
    if unfair:
        worst = unfair[0]
        more = f" Of {plural(len(unfair), 'pair')} that is so." if len(unfair) > 1 else ""
        return (
            f"It was not fair: {named(worst['tenant'])} was given {span(worst['ahead_s'])} of work more than "
            f"{named(worst['other'])}, by weight, from {moment(worst['since'])} to {moment(worst['until'])}, "
            f"while both waited; {span(worst['bound_s'])} is promised.{more}"
        )
    if not pairs:
        return "Nothing was shared: at no time was work given to one of two tenants that both waited."
    most = max(pairs, key=lambda row: float(row["ahead_s"]))
    return (
        f"It was fair: of {plural(len(tenants), 'tenant')} that waited none was given more than is promised. "
        f"The most was {span(most['ahead_s'])} of {span(most['bound_s'])}."
    )


def _pair(row: Row, rows: Sequence[Row]) -> list[str]:
    name = of_queue(row, rows)
    names = name(row["tenant"]), name(row["other"])
    return [*names, span(row["ahead_s"]), span(row["bound_s"]), moment(row["since"]), span(row["waited_s"])]


def _tenant(row: Row, rows: Sequence[Row]) -> list[str]:
    weight = short_number(row["weight"])
    return [of_queue(row, rows)(row["tenant"]), weight, span(row["waited_s"]), span(row["given_s"])]


def _picture(pairs: Sequence[Row], rows: Sequence[Row]) -> str:
    found = [
        Bar(
            f"{of_queue(row, rows)(row['tenant'])} ahead of {named(row['other'])}",
            row["ahead_s"], f"{span(row['ahead_s'])} of {span(row['bound_s'])}", row["bound_s"], _excess(row) > 0,
        )
        for row in pairs
    ]  # fmt: skip
    return bars("Seconds of work that one was ahead; the mark is what is promised", found)
