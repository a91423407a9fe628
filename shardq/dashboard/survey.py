"""The tenants of a queue: one survey of all; each order and each search shows its first ones."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from shardq.dashboard.numbers import NumbersLook, of_queue
from shardq.dashboard.scene import NotThere
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.errors import ConfigError
from shardq.model.controls import Controls
from shardq.model.tenant import Tenant
from shardq.ops.inspect.outlook import with_tenants
from shardq.ops.inspect.tenants import Account, Census, census, named
from shardq.ops.operate.controls import own_controls
from shardq.outlook.outlook import outlook_of
from shardq.outlook.tenant import TenantLoad
from shardq.partitions import surveys
from shardq.partitions.over import over, whole
from shardq.sharding import key_bytes

MAX_ROWS: Final = 50
"""Tenants that are shown."""
MANY_TENANTS: Final = 5_000
"""Tenants from which on they are put in order beside the loop, which has others to serve."""
FRESH_SURVEY: Final = 5.0
"""Seconds for which a survey counts as that of now, and longer if it took long."""
ORDERS: Final = ("waiting", "oldest", "flight", "share", "p99", "dead")

Works = Mapping[str | bytes, TenantLoad]


class FoundTenants(NamedTuple):
    """The tenants that come first in some order, of `matching` ones that have the search in their names, of all."""

    names: tuple[bytes, ...]
    matching: int
    total: int


async def survey(source: SceneSource, queue: str) -> Census:
    """Return what is known of all tenants. NotThere if there is no such queue, or it does not know its tenants."""
    state = source.client.queue(queue, create=False).state
    try:
        return await of_queue(
            source, "survey", queue, lambda: source.client.run(over(state, census, surveys.census)), FRESH_SURVEY
        )
    except ConfigError:
        raise NotThere(f"{queue} has no window, so it does not know its tenants: configure window=1.") from None


def survey_age(source: SceneSource, queue: str) -> float:
    """Return how old the survey is, in seconds."""
    return source.age(("survey", queue)) or 0.0


async def first(source: SceneSource, queue: str, order: str, search: str, works: Works) -> FoundTenants:
    """Return the tenants that come first."""
    known = await survey(source, queue)
    of_bytes = {key_bytes(key): work for key, work in works.items() if key}
    if order == "oldest" and not search:
        by_age = await _oldest(source, queue)
        total = len(_all(known, of_bytes))
        return FoundTenants(tuple(by_age), total, total)
    question = ("first", queue, order, search, known.time, tuple(sorted(of_bytes)))

    async def ask() -> FoundTenants:
        if len(known.accounts) < MANY_TENANTS:
            return _ordered(known, order, search, of_bytes)
        return await asyncio.to_thread(_ordered, known, order, search, of_bytes)

    return await source.shared(question, ask, fresh=FRESH_SURVEY)


async def described(source: SceneSource, queue: str, names: tuple[bytes, ...]) -> list[Tenant]:
    """Return what these tenants have now."""
    state = source.client.queue(queue, create=False).state
    known = await survey(source, queue)

    async def ask() -> list[Tenant]:
        op = over(state, lambda each: named(each, names, ages=True, in_streams=known.in_streams), surveys.named)
        return await source.client.run(op)

    return await source.shared(("described", queue, names), ask, fresh=FRESH_SECONDS)


async def look_with(source: SceneSource, look: NumbersLook, names: tuple[bytes, ...]) -> NumbersLook:
    """Return a look at a queue with what becomes of these tenants (at most 50) in any case."""
    state = source.client.queue(look.stats.queue, create=False).state

    async def ask() -> NumbersLook:
        facts = await source.client.run(whole(state, lambda each: with_tenants(each, look.facts, names)))
        return look._replace(facts=facts, outlook=outlook_of(facts))

    return await source.shared(("look with", look.stats.queue, names), ask)


async def controls_of(source: SceneSource, queue: str, names: tuple[bytes, ...]) -> Controls:
    """Return the limits, pauses and weights of these tenants alone, and the pause of the whole queue."""
    state = source.client.queue(queue, create=False).state

    async def ask() -> Controls:
        if not names:
            return Controls(0.0, {}, {}, {}, {})
        return await source.client.run(own_controls(state, None, names))

    return await source.shared(("controls of", queue, names), ask)


async def _oldest(source: SceneSource, queue: str) -> Sequence[bytes]:
    """Return who waits longest. That is known without a survey."""
    admin = source.client.queue(queue, create=False)
    found = await source.shared(("oldest", queue), lambda: admin.tenants("oldest", limit=MAX_ROWS), fresh=FRESH_SECONDS)
    return [key_bytes(each.shard_key) for each in found]


def _all(known: Census, works: Mapping[bytes, TenantLoad]) -> set[bytes]:
    """Return the names of all: also of those that have nothing any more, and were served in the last minute."""
    return known.accounts.keys() | known.dead.keys() | works.keys()


def _ordered(known: Census, order: str, search: str, works: Mapping[bytes, TenantLoad]) -> FoundTenants:
    rank, wanted = _rank_of(known, order, works), search.casefold()
    names = _all(known, works)
    matching = [name for name in names if wanted in name.decode(errors="replace").casefold()] if wanted else names
    # By name where ranks are the same, so that rows do not change places.
    found = heapq.nsmallest(MAX_ROWS, ((-rank(name), -_waits(known, name), name) for name in matching))
    return FoundTenants(tuple(name for *_, name in found), len(matching), len(names))


def _rank_of(known: Census, order: str, works: Mapping[bytes, TenantLoad]) -> Callable[[bytes], float]:
    """Return what tells how far in front a tenant comes."""
    if order == "flight":
        return lambda name: known.accounts.get(name, _NOTHING).in_flight
    if order == "dead":
        return lambda name: known.dead.get(name, 0)
    if order == "share":
        return lambda name: works[name].share if name in works else -1.0
    if order == "p99":
        return lambda name: (works[name].pickup_p99 or 0.0) if name in works else -1.0
    return lambda name: _waits(known, name)


def _waits(known: Census, name: bytes) -> int:
    account = known.accounts.get(name, _NOTHING)
    return account.backlog


_NOTHING: Final = Account()
