"""People's settings, event by event: rows of `settings`, each with all that is known of its key from then on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.schema import SETTINGS

KINDS: Final = ("configured", "weighted", "limited", "paused", "resumed", "plan_set", "plan_deleted")
SEEN: Final = "seen"
"""The kind of a row that says how a queue was when its table was begun."""
QUEUE, KEY, PLAN = "queue", "key", "plan"
Row = dict[str, Any]
Key = tuple[str, str, str | None]
"""The id of a queue, a scope, and a name."""


class JobControls:
    """The newest row of each key, to which events are added."""

    def __init__(self, rows: pa.Table | None = None) -> None:
        self._rows: dict[Key, Row] = {}
        for row in () if rows is None else rows.to_pylist():
            self._keep(row | {"values": dict(row["values"] or ())})

    def _keep(self, row: Row) -> Row:
        self._rows[row["queue_id"], row["scope"], row["key"]] = row
        return row

    def table(self) -> pa.Table:
        """Return the newest rows, those of each queue together."""
        return table_of(row for _, row in sorted(self._rows.items(), key=lambda each: str(each[0])))

    def knows(self, queue_id: str) -> bool:
        """Whether anything was set in this queue."""
        return any(key[0] == queue_id for key in self._rows)

    def add(self, events: pa.Table) -> pa.Table:
        """Add what *events* say, which are in the order of their times. Return the rows that come of it."""
        told = events.filter(pc.is_in(events["kind"], value_set=pa.array(KINDS)))
        return table_of(self._keep(self._after(each)) for each in told.to_pylist())

    def _after(self, event: Row) -> Row:
        values = {name: value for name, value in event["values"] or () if value != ""}
        kind, name = event["kind"], event["shard_key"]
        scope = QUEUE if name is None else KEY
        if kind in ("plan_set", "plan_deleted"):
            scope, name = PLAN, values.get("plan")
        before = self._rows.get((event["queue_id"], scope, name), {})
        row = {**dict.fromkeys(SETTINGS.names), "paused": False, **before, "values": values}
        row |= {each: event[each] for each in ("queue", "queue_id", "kind", "by", "note")}
        row |= {"at": event["time"], "scope": scope, "key": name}
        return row | _changed(kind, before, event, values)


def _changed(kind: str, before: Row, event: Row, values: Mapping[str, str]) -> Row:
    """Return what an event of this kind changes in the row of its key."""
    match kind:
        case "weighted":
            return {"weight": _number(values, "weight"), "weight_until": event["due"]}
        case "limited":
            return limits_in(values) | {"plan": values.get("plan"), "limits_until": event["due"]}
        case "plan_set":
            return limits_in(values) | {"weight": _number(values, "weight")}
        case "paused":
            return {"paused": True, "paused_until": event["due"]}
        case "resumed":
            return {"paused": False, "paused_until": None}
        case "configured":
            told = {name: value or "" for name, value in event["values"] or ()}
            known = {name: value for name, value in {**before.get("values", {}), **told}.items() if value != ""}
            return limits_in(known) | {"values": known}
    return dict.fromkeys(("cap", "rate", "burst", "weight"))


def limits_in(values: Mapping[str, str]) -> Row:
    """Return the columns of a row that limits fill, from values by name."""
    cap = _number(values, "max_in_flight")
    found = {"cap": None if cap is None else int(cap)}
    return found | {"rate": _number(values, "rate"), "burst": _number(values, "burst")}


def _number(values: Mapping[str, str], name: str) -> float | None:
    try:
        return float(values[name])
    except (KeyError, ValueError):
        return None


def seen_row(queue: str, queue_id: str, at: datetime, **values: Any) -> Row:
    """Return a row of how something is in the queue now."""
    row: Row = {**dict.fromkeys(SETTINGS.names), "paused": False, "scope": QUEUE, "values": {}, "kind": SEEN}
    return row | {"queue": queue, "queue_id": queue_id, "at": at} | values


def table_of(rows: Iterable[Row]) -> pa.Table:
    """Return rows as a table."""
    listed = [row | {"values": sorted(row["values"].items())} for row in rows]
    return pa.Table.from_pylist(listed, schema=SETTINGS)
