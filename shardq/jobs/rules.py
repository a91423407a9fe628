"""The limits in force for a tenant, and its pauses, over time: the rows of `settings` together."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa

from shardq.jobs.controls import KEY, PLAN, QUEUE, Row

ALWAYS: Final = 1 << 52
"""Ms: later than any time."""


class Rule(NamedTuple):
    """The rule for a tenant from a time on, in ms: a cap and a rate, 0 where there is none."""

    since: int
    cap: float
    rate: float
    burst: float
    paused: bool
    plan: str | None


class Rules:
    """The rules in force in one queue, at any time: by its rows of `settings`, in any order."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._histories: dict[tuple[str, str | None], list[Row]] = {}
        for row in sorted(rows, key=lambda each: ms(each["at"])):
            self._histories.setdefault((row["scope"], row["key"]), []).append(row)
        self._usual = self._made(None)
        self._known: dict[str | None, list[Rule]] = {}

    @property
    def parents(self) -> bool:
        """Whether shard keys count under parents."""
        rows = self._histories.get((QUEUE, None), [])
        return bool(rows) and dict(rows[-1]["values"] or ()).get("parents", "0") not in ("0", "")

    def named(self) -> set[str]:
        """Return the tenants that ever had something of their own."""
        return {name for scope, name in self._histories if scope == KEY and name is not None}

    def are_for_all(self) -> bool:
        """Whether a tenant without anything of its own was ever limited or paused."""
        return any(each.cap or each.rate or each.paused for each in self._usual)

    def of(self, name: str | None) -> list[Rule]:
        """Return the rules of a tenant, by their times; the first has been in force always."""
        if (KEY, name) not in self._histories:
            return self._usual
        if name not in self._known:
            self._known[name] = self._made(name)
        return self._known[name]

    def plan_at(self, name: str | None, time: int) -> str | None:
        """Return the plan that a tenant was on at a time."""
        rules = self.of(name)
        return rules[max(0, bisect_right(rules, time, key=lambda each: each.since) - 1)].plan

    def _made(self, name: str | None) -> list[Rule]:
        own = self._histories.get((KEY, name), []) if name is not None else []
        plans = {row["plan"] for row in own if row["plan"]}
        all_of = [*self._histories.get((QUEUE, None), []), *own]
        all_of += [row for each in plans for row in self._histories.get((PLAN, each), [])]
        moments = {0} | {moment for row in all_of for moment in _moments(row)}
        rules: list[Rule] = []
        for moment in sorted(moments):
            rule = self._at(name, moment)
            if not rules or rules[-1][1:] != rule[1:]:
                rules.append(rule)
        return rules

    def _row(self, scope: str, name: str | None, moment: int) -> Row:
        rows = self._histories.get((scope, name), [])
        at = bisect_right(rows, moment, key=lambda row: ms(row["at"]))
        return rows[at - 1] if at else {}

    def _at(self, name: str | None, moment: int) -> Rule:
        queue, own = self._row(QUEUE, None, moment), {} if name is None else self._row(KEY, name, moment)
        paused = any(row.get("paused") and moment < _end(row, "paused_until") for row in (queue, own))
        limits = own if moment < _end(own, "limits_until") else {}
        weight = own.get("weight") if moment < _end(own, "weight_until") else None
        plan = limits.get("plan")
        if plan is not None:
            limits = self._row(PLAN, plan, moment)
            weight = limits.get("weight") if weight in (None, 1) else weight
        cap, rate, burst = (limits.get(each) for each in ("cap", "rate", "burst"))
        if cap is None:
            cap = (queue.get("cap") or 0) * (weight or 1)
        if rate is None and burst is None:
            burst = queue.get("burst")
        rate = (queue.get("rate") or 0) if rate is None else rate
        return Rule(moment, cap, rate, burst or max(1.0, math.ceil(rate)), paused, plan)


def _moments(row: Row) -> list[int]:
    ends = [row[each] for each in ("weight_until", "limits_until", "paused_until") if row[each] is not None]
    return [ms(each) for each in (row["at"], *ends)]


def _end(row: Row, name: str) -> int:
    until = row.get(name)
    return ALWAYS if until is None else ms(until)


def ms(time: Any) -> int:
    """Return a time in whole ms since 1970."""
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else int(time)


def rules_of(settings: pa.Table) -> dict[str, Rules]:
    """Return the rules of each queue, by its id."""
    by_queue: dict[str, list[Row]] = {}
    for row in settings.to_pylist():
        by_queue.setdefault(row["queue_id"], []).append(row)
    return {queue_id: Rules(rows) for queue_id, rows in by_queue.items()}
