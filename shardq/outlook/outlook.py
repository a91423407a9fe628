"""The fate of waiting messages: for what they wait, when they are served, and what would help."""

from __future__ import annotations

import math

import msgspec

from shardq.model.outlook import DrainState, Outlook, TenantOutlook
from shardq.outlook import reasons
from shardq.outlook.crowd import Crowd, Served, crowd_of
from shardq.outlook.facts import Facts
from shardq.outlook.helps import SOON_SECONDS, helps_of
from shardq.outlook.pace import DrainPace, pace_of
from shardq.outlook.pickups import pickup_of_others


class Drain(msgspec.Struct, frozen=True):
    """The fate of the backlog: in how many `seconds` it is served, and `why` that is not known, or supposed."""

    state: DrainState
    seconds: float | None
    why: str = ""


def outlook_of(facts: Facts) -> Outlook:
    """Return what becomes of what waits."""
    pace = pace_of(facts)
    crowd = crowd_of(facts, pace)
    served = None
    if facts.has_reader and pace.capacity:
        served = crowd.served(pace.capacity, pace.background)
    drain = drain_of(facts, pace, crowd)
    found = reasons.of_queue(facts)
    large = crowd.shown[0][0].shard_key if crowd.shown else None
    others = served.last(beside=large) if served else math.inf
    return Outlook(
        queue=facts.stats.queue,
        time=facts.now,
        waits=sum(found.values()),
        reasons=found,
        drains=drain.state,
        drain_seconds=drain.seconds,
        why=drain.why,
        grows=drain.state == "grows",
        rate=pace.rate,
        written_rate=pace.written,
        slots=pace.slots,
        busy=pace.busy,
        workers=pace.workers,
        is_read=facts.has_reader,
        tenants=tuple(_tenants(facts, crowd, served)),
        tenants_are_some=not facts.waiters.are_all,
        tenants_waiting=crowd.tenants_waiting,
        others_served_in=others if math.isfinite(others) else None,
        others_pickup=pickup_of_others(facts.working, _held(facts, large)),
        helps=helps_of(facts, pace, crowd, drain.seconds, served),
        capacity=pace.capacity,
        weights=crowd.weights,
    )


def _tenants(facts: Facts, crowd: Crowd, served: Served | None) -> list[TenantOutlook]:
    found = []
    for waiter, part in crowd.shown:
        done_at = (math.inf if served is None else served.of(waiter.shard_key)) if part.left else 0.0
        found.append(
            TenantOutlook(
                shard_key=waiter.shard_key,
                waits=waiter.backlog + waiter.delayed,
                reasons=reasons.of_waiter(facts, waiter),
                served_in=done_at if math.isfinite(done_at) else None,
                weight=waiter.weight,
                in_flight=waiter.in_flight,
                max_in_flight=waiter.max_in_flight,
                rate=waiter.rate,
                paused_until=waiter.paused_until,
            )
        )
    return found


def _held(facts: Facts, large: str | bytes | None) -> set[str | bytes]:
    """Return who does not tell how long others wait: the *large* one, and who waits for a limit or a pause."""
    found = {each.shard_key for each in facts.waiters.rows if each.blocked or each.paused_until is not None}
    return found if large is None else found | {large}


def drain_of(facts: Facts, pace: DrainPace, crowd: Crowd) -> Drain:
    """Return what becomes of the backlog."""
    if facts.stats.backlog <= 0:
        return Drain("empty", 0.0)
    if facts.paused_until is not None and math.isinf(facts.paused_until):
        return Drain("stands", None, "it is paused")
    if not facts.has_reader:
        return Drain("stands", None, "no worker reads it")
    if not pace.capacity:
        return Drain("unknown", None, "nobody knows yet how fast it is served")
    # A backlog that is served within seconds is none that grows.
    if facts.paused_until is None and 0 < facts.stats.runnable <= SOON_SECONDS * pace.capacity:
        return Drain("drains", facts.stats.runnable / pace.capacity)
    if pace.grows and facts.stats.runnable:
        return Drain("grows", None, "more is written than is done")
    served = crowd.served(pace.capacity, pace.written or 0.0)
    seconds = served.last() or served.last_held()
    if not math.isfinite(seconds):
        return Drain("stands", None, "what waits is paused")
    return Drain("drains", seconds, "if no more is written" if pace.written is None else "")
