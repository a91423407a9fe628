"""How a queue is set when its table begins: a journal tells changes only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from math import isinf
from typing import TYPE_CHECKING, Any

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.controls import KEY, PLAN, QUEUE, Row, limits_in, seen_row, table_of
from shardq.model import Control, Controls, Limits
from shardq.protocol.replies import created_ms

if TYPE_CHECKING:
    from shardq.client import Queue


def seen_settings(queue: Queue, queue_id: str, events: pa.Table) -> pa.Table:
    """Return rows of how *queue* is set now, but for what was set since the first of *events*: those tell it."""
    first = pc.min(events["time"]).as_py() or datetime.fromtimestamp(created_ms(queue_id) / 1000, UTC)
    found, flat = queue.controls(), [*map(str, queue.settings().settings())]
    changed = {name for pairs in _told(events, "configured") for name, _ in pairs or ()}
    values = {name: value for name, value in zip(flat[::2], flat[1::2], strict=True) if name not in changed}
    planned = {dict(pairs or ()).get("plan") for pairs in _told(events, "plan_set", "plan_deleted")}
    rows: dict[tuple[str, str | None], Row] = {(QUEUE, None): {"values": values, **limits_in(values)}}
    for name, plan in found.plans.items():
        if name not in planned:
            rows[PLAN, name] = {**_numbers(plan), "weight": plan.weight}
    for owner, row in _own(found, first.timestamp()):
        where = (QUEUE, None) if owner is None else (KEY, owner)
        rows[where] = rows.get(where, {}) | row
    made = (seen_row(queue.name, queue_id, first, scope=scope, key=key, **row) for (scope, key), row in rows.items())
    return table_of(made)


def _told(events: pa.Table, *kinds: str) -> list[Any]:
    return list(events.filter(pc.is_in(events["kind"], value_set=pa.array(kinds)))["values"].to_pylist())


def _own(found: Controls, first: float) -> Iterator[tuple[str | None, Row]]:
    """The tenants' own limits, and a pause of the whole queue (None), that were set before *first*."""
    for name, pause in found.paused.items():
        if (pause.since or 0) < first:
            yield _text(name), {"paused": True, "paused_until": _end(pause)}
    for name, limits in found.limits.items():
        if (limits.since or 0) < first:
            own = limits.limits
            numbers = {"plan": own} if isinstance(own, str) else _numbers(own)
            yield _text(name), {**numbers, "limits_until": _end(limits)}
    for name, weight in found.weights.items():
        if (weight.since or 0) < first:
            yield _text(name), {"weight": weight.weight, "weight_until": _end(weight)}


def _numbers(limits: Limits) -> dict[str, Any]:
    return {"cap": limits.max_in_flight, "rate": limits.rate, "burst": limits.burst}


def _end(control: Control) -> datetime | None:
    return None if isinf(control.until) else datetime.fromtimestamp(control.until, UTC)


def _text(name: str | bytes | None) -> str | None:
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
