"""Workers that come and go: rows of `capacity`, each a stay of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.schema import CAPACITY

JOINED, LEFT = "joined", "left"
Row = dict[str, Any]
MAX_SLOTS: Final = 2**31 - 1


class Capacity:
    """The workers that are there, to which events are added."""

    def __init__(self, present: pa.Table | None = None) -> None:
        rows = [] if present is None else present.to_pylist()
        self._present: dict[tuple[str, str], Row] = {(row["queue_id"], row["worker"]): row for row in rows}

    def present(self) -> pa.Table:
        """Return those who are there."""
        return _table(row for _, row in sorted(self._present.items()))

    def add(self, events: pa.Table) -> pa.Table:
        """Add what *events* say, which are in the order of their times. Return the stays that are over."""
        told = events.filter(pc.is_in(events["kind"], value_set=pa.array([JOINED, LEFT])))
        return _table(row for each in told.to_pylist() if (row := self._after(each)) is not None)

    def _after(self, event: Row) -> Row | None:
        values = dict(event["values"] or ())
        key = event["queue_id"], values.get("worker", "")
        before = self._present.pop(key, None)
        if event["kind"] == JOINED:
            # It was there already where the event that it left is lost: then it is one stay.
            self._present[key] = before or self._row(event, values) | {"from_at": event["time"]}
            return None
        row = before or self._row(event, values)
        return row | {"to_at": event["time"], "silent_s": _seconds(values.get("silent"))}

    def _row(self, event: Row, values: dict[str, str]) -> Row:
        slots = values.get("slots", "")
        row = {**dict.fromkeys(CAPACITY.names), "worker": values.get("worker")}
        row["slots"] = min(int(slots), MAX_SLOTS) if slots.isdecimal() else None
        return row | {each: event[each] for each in ("queue", "queue_id")}


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([*rows], schema=CAPACITY)
