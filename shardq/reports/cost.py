"""The cost: the price of a slot-second times the seconds of handlers, and idle slots apart, as FOCUS says it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shardq.model.wording import plural, share, span
from shardq.reports.names import named
from shardq.reports.options import Options
from shardq.reports.pictures import Stack, columns
from shardq.reports.tables import Row, Tables
from shardq.reports.times import day
from shardq.reports.told import Table, Told

TITLE: Final = "What it cost"
IDLE: Final = "Idle slots of workers"
"""The ChargeDescription of slots that nobody used."""


def report(tables: Tables, options: Options) -> Told:
    """Tell what it cost."""
    found = tables.rows("cost", price=options.price, currency=options.currency)
    rows = [
        row | {name: _iso(row[name]) for name in ("ChargePeriodStart", "ChargePeriodEnd")} for row in map(dict, found)
    ]
    work = [row for row in found if row["ChargeDescription"] != IDLE]
    idle = [row for row in found if row["ChargeDescription"] == IDLE]
    money = _money(options.currency)
    spent, unused = _cost(work), _cost(idle)
    tenants = _by(work, lambda row: str(row["SubAccountId"]))
    shown = [
        Table("By tenant", ("tenant", "time", "cost", "share"), _lines(tenants, spent, money, options.rows)),
        Table("By task", ("task", "time", "cost", "share"),
              _lines(_by(work, lambda row: str(row["x_Task"])), spent, money, options.rows)),
        Table("By day", ("day", "work", "idle"), [
            [day(at), money(_cost(_at(work, at))), money(_cost(_at(idle, at)))]
            for at in sorted({row["ChargePeriodStart"] for row in found})[-options.rows :]
        ]),
    ]  # fmt: skip
    verdict = "Nothing was used in this time."
    if found:
        beside = f"; idle slots cost {money(unused)} beside" if idle else "; which slots were idle is not known"
        verdict = f"{plural(len(tenants), 'tenant')} used {money(spent)}{beside}."
    return Told(TITLE, verdict, False, shown, _picture(work, idle, options), rows)


def _iso(at: float) -> str:
    return f"{day(at)}T00:00:00Z"


def _money(currency: str) -> Callable[[float], str]:
    return lambda cost: f"{cost:,.2f} {currency}" if cost >= 1 or not cost else f"{cost:.4g} {currency}"


def _cost(rows: Sequence[Row]) -> float:
    return float(sum(row["BilledCost"] for row in rows))


def _at(rows: Sequence[Row], at: float) -> list[Row]:
    return [row for row in rows if row["ChargePeriodStart"] == at]


def _by(rows: Sequence[Row], name: Callable[[Row], str]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[name(row)].append(row)
    return dict(sorted(found.items(), key=lambda each: -_cost(each[1])))


def _lines(found: Mapping[str, list[Row]], total: float, money: Callable[[float], str], most: int) -> list[list[str]]:
    shown = []
    for name, rows in list(found.items())[:most]:
        seconds = span(sum(row["ConsumedQuantity"] for row in rows))
        shown.append([named(name), seconds, money(_cost(rows)), share(_cost(rows) / (total or 1.0))])
    return shown


def _picture(work: Sequence[Row], idle: Sequence[Row], options: Options) -> str:
    days = sorted({row["ChargePeriodStart"] for row in (*work, *idle)})
    found = [Stack(at, (_cost(_at(work, at)), _cost(_at(idle, at)))) for at in days]
    return columns("Cost of each day", found, ("work", "idle slots"), unit=options.currency)
