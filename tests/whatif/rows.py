"""The rows of the table of jobs that a journal tells, as plainly as can be: all jobs were acked in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from shardq.jobs.schema import CAPACITY, JOBS, SETTINGS
from shardq.model import Event
from tests.whatif.truth import BEGAN, Way

Row = dict[str, Any]


def jobs_of(events: Iterable[Event]) -> list[Row]:
    """A row for each message."""
    by_message: dict[str, list[Event]] = {}
    for event in events:
        if event.message_id:
            by_message.setdefault(event.message_id, []).append(event)
    return [_job(each) for each in by_message.values()]


def _job(events: Sequence[Event]) -> Row:
    row: Row = dict.fromkeys(JOBS.names) | {"queue": "q", "message_id": events[0].message_id}
    row |= {"attempts": 0, "uncounted": 0, "wait_s": 0.0, "held_s": 0.0, "ran_s": None}
    since = 0.0
    for event in events:
        if event.kind == "written":
            row |= {"shard_key": event.shard_key, "written_at": event.time, "ready_at": event.due or event.time}
            since = event.due or event.time
        elif event.kind == "delivered":
            row["first_at"] = event.time if row["first_at"] is None else row["first_at"]
            row |= {
                "last_at": event.time,
                "attempts": row["attempts"] + 1,
                "wait_s": row["wait_s"] + event.time - since,
            }
            since = event.time
        elif event.kind in ("acked", "nacked"):
            row["held_s"] += event.time - since
            if event.ran_ms is not None:
                row["ran_s"] = (row["ran_s"] or 0.0) + event.ran_ms / 1000
            since = event.due or event.time
            if event.kind == "acked":
                row |= {"outcome": "acked", "ended_at": event.time}
    return {name: _time(value) if name.endswith("_at") else value for name, value in row.items()}


def capacity_of(way: Way) -> list[Row]:
    """A row for each worker."""
    return [
        dict.fromkeys(CAPACITY.names)
        | {"slots": slots, "from_at": _time(BEGAN + begin), "to_at": _time(BEGAN + end) if end < 1e8 else None}
        for slots, begin, end in way.workers
    ]


def settings_of(events: Iterable[Event], way: Way, values: dict[str, str]) -> list[Row]:
    """What stood at the begin, and the pauses that came."""
    rows = [_set(BEGAN, "seen", "queue", None, values=values)]
    for name, plan in way.plans.items():
        numbers = {"cap": plan.max_in_flight, "rate": plan.rate, "burst": plan.burst, "weight": float(plan.weight)}
        rows.append(_set(BEGAN, "seen", "plan", name, **numbers))
    rows += [_set(BEGAN, "seen", "key", key, **_of_key(way, key)) for key in {*way.weights, *way.limits}]
    for event in events:
        if event.kind in ("paused", "resumed"):
            is_paused = event.kind == "paused"
            key: Any = event.shard_key
            rows.append(_set(event.time, event.kind, "key", key, paused=is_paused, **_of_key(way, key)))
    return rows


def _of_key(way: Way, key: str) -> Row:
    limits = way.limits.get(key)
    found: Row = {"weight": float(way.weights[key]) if key in way.weights else None}
    if isinstance(limits, str):
        return found | {"plan": limits}
    if limits is None:
        return found
    return found | {"cap": limits.max_in_flight, "rate": limits.rate, "burst": limits.burst}


def _set(at: float, kind: str, scope: str, key: str | None, **more: Any) -> Row:
    usual = {"paused": False, "values": []}
    row: Row = dict.fromkeys(SETTINGS.names) | usual | {"at": _time(at), "kind": kind, "scope": scope, "key": key}
    return row | more | {"values": list(more.get("values", {}).items())}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
