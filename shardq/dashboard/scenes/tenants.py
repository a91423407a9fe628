"""Tenants: which one is noisy, whether anybody suffers, and what each has."""

from __future__ import annotations

import math
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.fitting import fitted
from shardq.dashboard.heading import heading
from shardq.dashboard.marked import queue_in, spelled
from shardq.dashboard.names import address_of, shown
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.past import past
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.dashboard.survey import ORDERS, Works, controls_of, described, first, look_with, survey_age
from shardq.model.controls import Control, Controls
from shardq.model.outlook import Outlook, TenantOutlook
from shardq.model.tenant import Tenant
from shardq.model.wording import number
from shardq.outlook.names import name_of
from shardq.outlook.noisy import noisy
from shardq.outlook.sentence import At, Parts
from shardq.outlook.tenant import TenantLoad, works_of
from shardq.outlook.tenants import tenants_said

MAX_SEARCH: Final = 200
"""Letters of a search."""


async def tenants(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return the tenants that come first in the order that is asked for, among those whose names hold the search."""
    name = queue_in(asked)
    order = asked.query.get("order", "")
    order = order if order in ORDERS else ORDERS[0]
    search = asked.query.get("search", "")[:MAX_SEARCH]
    look = await numbers.look(source, name)
    works = works_of(look.facts.workers)
    found = await first(source, name, order, search, works)
    outlook = (await look_with(source, look, found.names)).outlook
    given = await controls_of(source, name, found.names)
    rows = await described(source, name, found.names)
    if order == "oldest":
        rows.sort(key=lambda each: -(each.oldest_age or 0.0))
    scene = {
        "said": heading(tenants_said(outlook, found.total, works, is_paused=look.stats.paused_until is not None)),
        "now": look.stats.time,
        "age": survey_age(source, name),
        "queue": name,
        "order": order,
        "search": search,
        "total": found.total,
        "matching": found.matching,
        "most": max((each.waits for each in outlook.tenants), default=0),
        "past": _past(look),
        "others": outlook.others_pickup,
        "rows": _rows(rows, outlook, given, works),
        "more": found.matching - len(rows),
    }
    return fitted(scene, {"rows": "more"})


def _past(look: NumbersLook) -> dict[str, Any] | None:
    """Return how long the first in line had waited in each minute of the last half hour; None if nobody told."""
    lines = past(look.facts.minutes, look.stats.time, look.facts.working)
    return lines and {name: lines[name] for name in ("start", "step", "marks", "oldest")}


def _rows(rows: list[Tenant], outlook: Outlook, given: Controls, works: Works) -> list[dict[str, Any]]:
    known = {each.shard_key: each for each in outlook.tenants}
    loud = noisy(outlook)
    noisy_key = loud.shard_key if loud else None
    return [
        _row(each, known.get(each.shard_key), given, works.get(each.shard_key), is_noisy=each.shard_key == noisy_key)
        for each in rows
    ]


def _row(
    tenant: Tenant, part: TenantOutlook | None, given: Controls, work: TenantLoad | None, *, is_noisy: bool
) -> dict[str, Any]:
    reasons = part.reasons if part else {}
    return {
        "key": address_of(tenant.shard_key),
        "name": shown(tenant.shard_key),
        "reasons": {reason: count for reason, count in reasons.items() if count},
        "waits": tenant.backlog,
        "oldest": tenant.oldest_age,
        "served_in": part.served_in if part and tenant.backlog else None,
        "flight": tenant.in_flight,
        "cap": part.max_in_flight if part else tenant.limits.max_in_flight or 0,
        "share": work.share if work else None,
        "p99": work.pickup_p99 if work else None,
        "plan": name_of(tenant.plan) if tenant.plan else "",
        "tags": [[css, spelled(parts)] for css, parts in tags(tenant, given)],
        "dead": tenant.dead,
        "tone": "warn" if is_noisy else "pause" if tenant.paused_until is not None else "",
    }


def tags(tenant: Tenant, given: Controls) -> list[tuple[str, Parts]]:
    """Return what is special about a tenant: limits, a pause, a weight, each with its end."""
    found: list[tuple[str, Parts]] = []
    limits, key = tenant.limits, tenant.shard_key
    end = _until(given.limits.get(key), given.time)
    if limits.rate:
        found.append(("limit", [f"{limits.rate:g}/s", *end]))
    if limits.max_in_flight:
        found.append(("limit", [f"{number(limits.max_in_flight)} in flight", *end]))
    if tenant.paused_until is not None:
        found.append(("pause", ["paused", *_until(given.paused.get(key), given.time)]))
    if tenant.weight > 1:
        found.append(("", [f"weight {tenant.weight}", *_until(given.weights.get(key), given.time)]))
    return found


def _until(control: Control | None, now: float) -> Parts:
    return [] if control is None or math.isinf(control.until) else [" until ", At(control.until, now)]
