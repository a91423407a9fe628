"""Tenant: why it waits, until when, and what would help."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.fitting import fitted
from shardq.dashboard.heading import heading
from shardq.dashboard.marked import cut, spelled, two_in
from shardq.dashboard.names import address_of, args_of, key_of, shown
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.past import past
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.dashboard.survey import controls_of, look_with
from shardq.errors import ConfigError
from shardq.model.controls import Control
from shardq.model.failure import Failure
from shardq.model.peeked import PeekedMessage, PeekState
from shardq.model.settings import QueueConfig
from shardq.model.tenant import Tenant
from shardq.model.wording import number, plural, rate, share, span
from shardq.ops.operate.plans import plans
from shardq.outlook.failing import Kind, error_of, fails_of, kind_of, united
from shardq.outlook.helps import effect_of_whom
from shardq.outlook.names import name_of
from shardq.outlook.peeked import when
from shardq.outlook.sentence import At, Bold, Parts
from shardq.outlook.tenant import TenantCase, tenant_said, untils, works_of
from shardq.outlook.turns import TenantTurn, next_turns
from shardq.sharding import key_bytes

MAX_MESSAGES: Final = 5
"""Messages that are shown of each state."""
MAX_GROUPS: Final = 20
"""Groups of failures that are shown."""
MAX_TEXT: Final = 200
"""Letters of an error's text."""
SLOW_FRESH_SECONDS: Final = 10.0
"""Seconds for which messages, neighbours and settings count as those of now."""


async def tenant(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return why a tenant waits. NotThere if there is no such queue, or no tenant can have that name."""
    name, address = two_in(asked)
    key = key_of(address)
    names = (key_bytes(key),)
    look = await look_with(source, await numbers.look(source, name), names)
    wants_neighbours = asked.query.get("neighbours") == "1"
    found, given, config, count = await asyncio.gather(
        _tenant(source, name, key), controls_of(source, name, names), _settings(source, name), _plans(source, name)
    )
    work = works_of(look.facts.workers).get(key)
    fails = fails_of(look.facts)
    case = TenantCase(found, look.outlook, given, work)
    scene = {
        "said": heading(tenant_said(case)),
        "now": case.now,
        "queue": name,
        "key": address,
        "name": shown(key),
        "who": args_of(key),
        "is_paused": case.pause is not None,
        "can_purge": found.backlog + found.delayed + found.dead,
        "figures": _figures(case),
        "reasons": {reason: count for reason, count in case.reasons.items() if count},
        "why": {reason: spelled(parts) for reason, parts in untils(case).items()},
        "turns": [[label, spelled(parts)] for label, parts in _turns(case, look)],
        "plan": name_of(found.plan) if found.plan else "",
        "can_plan": bool(count or found.plan),
        "limits": [[label, spelled(parts)] for label, parts in _limits(case, config)],
        "past": _past(look),
        "helps": _helps(case),
        "no_help": "Nothing that one could do would change much." if case.waits else "Nothing is needed.",
        "failures": [_failure(each, fails) for each in _failures_of(look, key)[:MAX_GROUPS]],
        "messages": await _messages(source, name, found),
        "more_messages": 0,
        "window": config.window,
        "neighbours": await _neighbours(source, name, key) if wants_neighbours else None,
    }
    return fitted(scene, {"messages": "more_messages"})


async def _tenant(source: SceneSource, queue: str, key: str | bytes) -> Tenant:
    admin = source.client.queue(queue, create=False)
    try:
        return await source.shared(("tenant", queue, key), lambda: admin.tenant(key))
    except ConfigError:
        raise NotThere(f"{queue} has no window, so it does not know its tenants: configure window=1.") from None


async def _settings(source: SceneSource, queue: str) -> QueueConfig:
    return await source.shared(
        ("settings", queue), source.client.queue(queue, create=False).settings, fresh=SLOW_FRESH_SECONDS
    )


async def _plans(source: SceneSource, queue: str) -> int:
    """Return how many plans there are, on which a tenant may be put."""
    state = source.client.queue(queue, create=False).state
    ask = numbers.of_queue(source, "plans", queue, lambda: source.client.run(plans(state)), SLOW_FRESH_SECONDS)
    return len(await numbers.allowed(ask) or ())


def _figures(case: TenantCase) -> dict[str, Any]:
    row, work = case.row, case.work
    return {
        "waiting": case.tenant.backlog,
        "oldest": case.tenant.oldest_age,
        "flight": case.tenant.in_flight,
        "cap": row.max_in_flight if row else case.tenant.limits.max_in_flight or 0,
        "share": work.share if work else None,
        "rate": work.rate if work else None,
        "p99": work.pickup_p99 if work else None,
        "dead": case.tenant.dead,
    }


def _turns(case: TenantCase, look: NumbersLook) -> list[tuple[str, Parts]]:
    """Return the line about its turns, if some of its messages wait for them."""
    row, outlook, waits = case.row, case.outlook, case.reasons["turn"]
    if row is None or not waits:
        return []
    found: list[tuple[str, Parts]] = []
    if outlook.capacity and outlook.weights >= row.weight:
        had = f"; it had {rate(case.work.rate)} in the last minute" if case.work else ""
        least = Bold(f"{number(row.weight)} of {plural(round(outlook.weights), 'part')}")
        fair = outlook.capacity * row.weight / outlook.weights
        found.append(("Its fair share", ["at least ", least, f", {rate(fair)}{had}"]))
    turns = next_turns(look.facts)
    keys = [each.shard_key for each in turns]
    if row.shard_key in keys:
        before = turns[: keys.index(row.shard_key)]
        found.append(("Before its next message", _before_next(before, outlook.capacity)))
    own = f"{number(waits - 1)} of its own, and what others write meanwhile"
    return [*found, ("Before its last one", [own])]


def _before_next(before: Sequence[TenantTurn], capacity: float | None) -> Parts:
    """Return what comes before its next turn: an estimate, as the turns are."""
    if not before:
        return ["nothing: it has the next turn"]
    count, others = sum(each.times for each in before), len({each.shard_key for each in before})
    soon = f": about {span(count / capacity)}" if capacity else ""
    whose = f" of {plural(others, 'other')}, which have less in flight or were served less"
    return ["about ", Bold(plural(count, "message")), whose + soon]


def _limits(case: TenantCase, config: QueueConfig) -> list[tuple[str, Parts]]:
    tenant, row, key = case.tenant, case.row, case.tenant.shard_key
    given, weight = case.controls.limits.get(key), case.controls.weights.get(key)
    cap = row.max_in_flight if row else tenant.limits.max_in_flight or 0
    a_second = row.rate if row else tenant.limits.rate or 0.0
    flight: Parts = [f"{number(tenant.in_flight)} of {number(cap)}"] if cap else ["no limit"]
    own_rate: Parts = [Bold(f"{a_second:g}/s")] if a_second else ["no limit"]
    found: list[tuple[str, Parts]] = [("In flight at once", flight), ("Rate", own_rate)]
    if given is not None:
        found.append(("These limits", _given(given, case.now)))
    pause = case.pause or case.pause_of_queue
    whole = "of the whole queue; " if pause is not None and pause is not case.pause else ""
    found.append(("Pause", ["none"] if pause is None else [whole, *_given(pause, case.now)]))
    found.append(("Weight", [number(tenant.weight), *([] if weight is None else ["; ", *_given(weight, case.now)])]))
    bounds = _bounds(tenant, config)
    return [*found, ("Of the queue's bounds", [bounds])] if bounds else found


def _given(control: Control, now: float) -> Parts:
    """Return who gave something, when, until when, and why."""
    found: Parts = [f"by {name_of(control.by)}"] if control.by else []
    if control.since is not None:
        found += [" since " if found else "since ", At(control.since, now)]
    found += [", " if found else ""]
    found += ["without an end"] if math.isinf(control.until) else ["until ", At(control.until, now)]
    return [*found, f": {cut(control.note, MAX_TEXT)}"] if control.note else found


def _bounds(tenant: Tenant, config: QueueConfig) -> str:
    """Return its part of what all tenants share, for the bounds that there are."""
    has = tenant.backlog + tenant.delayed + tenant.in_flight
    uses = [
        (has, config.max_len, "messages"),
        (tenant.dead, config.max_dead, "dead letters"),
        (tenant.dedup_keys, config.max_dedup, "dedup keys"),
        (tenant.result_bytes, config.max_result_bytes, "bytes of results"),
    ]
    return "; ".join(
        f"{number(used)} of {number(most)} {what}" + (f" ({share(used / most)})" if used >= most / 1000 else "")
        for used, most, what in uses
        if most and used
    )


def _past(look: NumbersLook) -> dict[str, Any] | None:
    lines = past(look.facts.minutes, look.stats.time, look.facts.working)
    return lines and {name: lines[name] for name in ("start", "step", "marks", "oldest")}


def _helps(case: TenantCase) -> list[dict[str, Any]]:
    """Return what would help it: for it alone, and where it does not wait for itself, for all."""
    key, reasons = case.tenant.shard_key, case.reasons
    is_of_all = bool(reasons["turn"] or case.pause_of_queue or not case.outlook.is_read)
    return [
        {"what": each.what, "text": spelled(effect_of_whom(each)), "helps": each.helps}
        for each in case.outlook.helps
        if case.waits and (each.shard_key == key or (each.shard_key is None and is_of_all))
    ]


def _failures_of(look: NumbersLook, key: str | bytes) -> list[Failure]:
    """Return the groups of failures that name it: each names the tenants that it had last, five at most."""
    return [each for each in united(look.facts.failures) if key in each.tenants]


def _failure(failure: Failure, fails: Collection[Kind]) -> dict[str, Any]:
    return {
        "task": cut(failure.task, MAX_TEXT),
        "error": cut(error_of(failure), MAX_TEXT),
        "recent": failure.recent,
        "fails": kind_of(failure) in fails,
        "retried": failure.retried,
        "dead": failure.dead,
        "last": failure.last,
        "tenants": failure.tenants_lately,
    }


async def _messages(source: SceneSource, queue: str, found: Tenant) -> list[dict[str, Any]]:
    """Return some of its messages: those being worked on, coming next, delayed, and dead."""
    has: dict[PeekState, int] = {
        "in_flight": found.in_flight,
        "waiting": found.backlog,  # those that are held back come last
        "delayed": found.delayed,
        "dead": found.dead,
    }
    states = [state for state, count in has.items() if count]
    admin = source.client.queue(queue, create=False)

    async def ask(state: PeekState) -> list[dict[str, Any]]:
        page = await admin.peek(MAX_MESSAGES, shard_key=found.shard_key, state=state)
        return [_message(each, page.time) for each in page.messages]

    async def some(state: PeekState) -> list[dict[str, Any]]:
        question = ("messages", queue, found.shard_key, state)
        return await source.shared(question, partial(ask, state), fresh=2 * FRESH_SECONDS)

    found_rows = [each for rows in await asyncio.gather(*map(some, states)) for each in rows]
    return list({each["id"]: each for each in found_rows}.values())  # one may move meanwhile


def _message(message: PeekedMessage, now: float) -> dict[str, Any]:
    return {
        "id": message.message_id,
        "state": message.state,
        "when": when(message, now),
        "task": cut(message.task, MAX_TEXT),
        "tries": message.deliveries,
        "error": cut(message.reason or message.error_type or message.last_error, MAX_TEXT),
        "size": message.size,
    }


async def _neighbours(source: SceneSource, queue: str, key: str | bytes) -> list[dict[str, Any]]:
    """Return who shares streams with it."""
    admin = source.client.queue(queue, create=False)
    ask = ("neighbours", queue, key)
    found = await source.shared(ask, lambda: admin.tenant(key, neighbours=True), fresh=SLOW_FRESH_SECONDS)
    return [
        {
            "key": address_of(each.shard_key),
            "name": shown(each.shard_key),
            "shared": each.shared,
            "of": len(found.streams),
            "backlog": each.backlog,
        }
        for each in found.neighbours
    ]
