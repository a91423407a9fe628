"""The side of each screen: the queues, the one that needs somebody most first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.source import SceneSource
from shardq.model import QueueStats
from shardq.model.verdict import Verdict
from shardq.outlook.failing import kind_of
from shardq.outlook.queues import QueueLook, worst_first

MAX_LISTED: Final = 200
"""Queues that are listed."""
MISSING: Final = QueueStats("", 0.0, 0, 0, 0, 0, None, ())
"""The numbers of a queue that is listed, and whose keys Redis lost."""
TONES: Final = {"paused": "pause", "idle": "idle", "quiet": "idle"}
"""The tones of verdicts whose severity is not their tone."""


def tone(verdict: Verdict | None) -> str:
    """Return the tone in which a verdict is shown."""
    if verdict is None:
        return "idle"
    return TONES.get(verdict.kind, verdict.severity)


async def side(source: SceneSource) -> dict[str, Any]:
    """Return the queues with how they are, and how many workers and schedules there are."""
    names = await numbers.queues(source)
    found = await numbers.looks(source, names)
    schedules = await numbers.schedules_of_all(source, [*found])
    listed = worst_first([_listed(name, found) for name in names[: numbers.MAX_QUEUES]])
    working = {each.id for look in found.values() if look for each in look.facts.workers if each.state == "working"}
    return {
        "queues": [_row(each, _counts(found.get(each.name))) for each in listed[:MAX_LISTED]],
        "more": max(0, len(names) - MAX_LISTED),
        "workers": len(working),
        "schedules": schedules,
    }


def _listed(name: str, found: Mapping[str, NumbersLook | None]) -> QueueLook:
    if name not in found:
        return QueueLook(name, MISSING)
    look = found[name]
    return QueueLook(name, look.stats, look.verdict, look.outlook) if look else QueueLook(name, None)


def _row(look: QueueLook, counts: Mapping[str, int]) -> dict[str, Any]:
    waiting = None if look.stats is None or look.is_missing else look.stats.backlog
    return {"name": look.name, "tone": "bad" if look.is_missing else tone(look.verdict), "waiting": waiting, **counts}


def _counts(look: NumbersLook | None) -> dict[str, int]:
    """Return how many tenants wait in a queue, and how many kinds of failures it knows: from what is asked anyway."""
    if look is None:
        return {}
    return {"tenants": look.outlook.tenants_waiting, "failures": len(set(map(kind_of, look.facts.failures)))}
