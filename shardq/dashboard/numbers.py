"""Questions that several screens ask: asked under one name, they are asked once."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from shardq.dashboard.scene import NotThere
from shardq.dashboard.source import FRESH_SECONDS, MAX_REST, SceneSource
from shardq.errors import BackendError, BackendTimeout, QueueMissing
from shardq.model import Controls, QueueConfig, QueueStats, Schedule
from shardq.model.minute import Minute
from shardq.model.outlook import Outlook
from shardq.model.verdict import SEVERITIES, Verdict
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect.outlook import KnownWorkers, everything, last_minutes, memory_of_node
from shardq.ops.inspect.stats import statistics
from shardq.outlook import crew, together
from shardq.outlook.facts import Facts, ServerMemory
from shardq.outlook.outlook import outlook_of
from shardq.outlook.verdict import verdict_of
from shardq.partitions.over import over, whole

T = TypeVar("T")
CALM_FRESH_SECONDS: Final = 10.0
"""Seconds for which numbers are fresh of a queue that needs nobody, where there are many."""
BEAT_SILENCE: Final = 10.0
"""Seconds without a beat of any worker of a queue, from which on it is not calm: they may be dead."""
MAX_FRESH_SECONDS: Final = 4.0
"""Seconds for which numbers of a queue are fresh at most, however long they took: a drill is shown within 35 s."""
MINUTES_FRESH_SECONDS: Final = 10.0
"""Seconds for which the minutes of a queue are fresh: workers tell theirs once a minute."""
CALM_PAST: Final = 30.0
"""The same of a queue that needs nobody, where there are many."""
QUIET_FRESH_SECONDS: Final = 20.0
"""Seconds for which numbers are fresh of a queue that has no messages, where there are many."""
IDLE_SECONDS: Final = 60.0
"""Seconds after which all is asked again of a queue that has no messages, and whose numbers stay as they are."""
RECENT_SECONDS: Final = 15.0
"""Seconds for which numbers tell, beside those of now, whether somebody reads."""
SCHEDULES_FRESH_SECONDS: Final = 60.0
"""Seconds for which it is fresh how many schedules there are."""
FEW_QUEUES: Final = 10
"""Queues that are all looked at as often as one."""
MAX_QUEUES: Final = 500
"""Queues that are looked at where all are."""
MAX_QUEUES_AT_ONCE: Final = 8
"""Queues that are asked for at a time where all are looked at."""


class NumbersLook(NamedTuple):
    """A queue at one instant: its numbers, and what is reckoned of them."""

    facts: Facts
    outlook: Outlook
    verdict: Verdict
    full_at: float = -math.inf
    """When all of it was asked, by the local monotonic clock: for an idle queue mostly its numbers alone are."""

    @property
    def stats(self) -> QueueStats:
        """The numbers."""
        return self.facts.stats


async def queues(source: SceneSource) -> list[str]:
    """Return the names of all queues."""
    return await source.shared(("queues",), source.client.queues, fresh=5.0)


async def look(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> NumbersLook:
    """Return all that is known of a queue at one instant. NotThere if there is no such queue."""
    question = ("look", queue)
    last: NumbersLook | None = source.last(question)
    before = last.stats if last and (source.age(question) or 0.0) < RECENT_SECONDS else None

    async def ask() -> NumbersLook:
        client, state, now = source.client, source.queue(queue).state, source.client.clock.monotonic()
        if (
            last is not None
            and fresh >= CALM_FRESH_SECONDS
            and now - last.full_at < IDLE_SECONDS
            and _is_idle(last.stats)
        ):
            stats = await client.run(over(state, statistics, together.statistics, looks=True))
            if replace(stats, time=last.stats.time) == last.stats:
                return last._replace(facts=replace(last.facts, stats=stats))
        known = await _known(source, queue, fresh)
        facts = await client.run(whole(state, lambda each: everything(each, before, known=known)))
        outlook = outlook_of(facts)
        return NumbersLook(facts, outlook, verdict_of(facts, outlook), now)

    return await of_queue(source, "look", queue, ask, fresh, longest=MAX_FRESH_SECONDS)


def _is_idle(stats: QueueStats) -> bool:
    return not (stats.backlog or stats.in_flight or stats.delayed)


async def _known(source: SceneSource, queue: str, fresh: float) -> KnownWorkers:
    """Return what changes seldom of a queue, and what all queues of a server have in common."""
    client, state = source.client, source.queue(queue).state

    async def minutes() -> tuple[Minute, ...]:
        return await client.run(whole(state, lambda each: last_minutes(each, each.until())))

    async def memory() -> ServerMemory | None:
        return await client.run(whole(state, lambda each: memory_of_node(each, each.until())))

    node = queue if state.cluster else ""
    return KnownWorkers(
        await of_queue(
            source, "minutes", queue, minutes, MINUTES_FRESH_SECONDS if fresh < CALM_FRESH_SECONDS else CALM_PAST
        ),
        await source.shared(("memory", node), memory, longest=MAX_FRESH_SECONDS),
    )


async def looks(source: SceneSource, names: Sequence[str]) -> dict[str, NumbersLook | None]:
    """Return what is known of these queues, 500 at most, without those that are gone. None: one may not look at it.

    Where there are many, ten of those that need somebody are looked at each 2 s, the worst first, those without
    messages each 20 s, and others each 10 s. Those whose workers miss their beats need somebody, too, so that a death
    shows as soon as where there are few.
    """
    places = asyncio.Semaphore(MAX_QUEUES_AT_ONCE)
    known: dict[str, NumbersLook | None] = {}
    old: list[tuple[str, float]] = []
    lately: dict[str, NumbersLook | None] = {name: source.last(("look", name)) for name in names[:MAX_QUEUES]}
    often = lately.keys() if len(names) <= FEW_QUEUES else _worst(lately)
    for name, before in lately.items():  # most are fresh, and then a task for each would cost more than all else
        fresh = (
            FRESH_SECONDS
            if before is None or name in often
            else QUIET_FRESH_SECONDS
            if _is_idle(before.stats)
            else CALM_FRESH_SECONDS
        )
        if before is not None and source.is_fresh(("look", name), fresh, MAX_FRESH_SECONDS):
            known[name] = before
        else:
            old.append((name, fresh))

    async def one(name: str, fresh: float) -> tuple[str, NumbersLook | None]:
        async with places:
            return name, await allowed(look(source, name, fresh))

    found = await asyncio.gather(*(one(*each) for each in old), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, NotThere):
            raise each
    known |= dict(each for each in found if not isinstance(each, BaseException))
    return {name: known[name] for name in names if name in known}


def _worst(lately: Mapping[str, NumbersLook | None]) -> set[str]:
    """Return the queues that need somebody most, a few."""
    needing = {name: each for name, each in lately.items() if each is not None and not _is_calm(each)}

    def rank(name: str) -> tuple[int, int, str]:
        return SEVERITIES.index(needing[name].verdict.severity), -needing[name].stats.backlog, name

    return set(heapq.nsmallest(FEW_QUEUES, needing, key=rank))


def _is_calm(before: NumbersLook) -> bool:
    """Whether nobody is needed. A queue without messages is not asked each time when its workers were heard."""
    facts = before.facts
    heard = max((each.heard for each in facts.working), default=facts.now)
    return before.verdict.severity == "good" and (_is_idle(before.stats) or facts.now - heard < BEAT_SILENCE)


async def stats(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> QueueStats:
    """Return the numbers of a queue, also to a user of Redis who may read no more. NotThere if there is no queue."""
    found = await allowed(look(source, queue, fresh))
    if found is not None:
        return found.stats
    return await of_queue(source, "stats", queue, source.queue(queue).stats, fresh)


async def outlook(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> Outlook:
    """Return what becomes of what waits in a queue. NotThere if there is no such queue."""
    return (await look(source, queue, fresh)).outlook


async def verdict(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> Verdict:
    """Return how a queue is. NotThere if there is no such queue."""
    return (await look(source, queue, fresh)).verdict


async def workers(source: SceneSource, queue: str, fresh: float = 5.0) -> list[WorkerStatus]:
    """Return the workers of a queue, also those that are gone. NotThere if there is no such queue."""
    return await of_queue(source, "workers", queue, source.queue(queue).workers, fresh)


async def history(source: SceneSource, queue: str, minutes: int = 60, fresh: float = 10.0) -> list[Minute]:
    """Return the last *minutes* of a queue. NotThere if there is no such queue."""
    admin = source.queue(queue)
    return await of_queue(source, f"history {minutes}", queue, lambda: admin.history(minutes), fresh)


async def schedules_of_all(source: SceneSource, names: Sequence[str]) -> int:
    """Return how many schedules these queues have, among those that are there and may be asked."""

    async def ask() -> int:
        found = await of_each(names, lambda name: stored(source, name, SCHEDULES_FRESH_SECONDS))
        return sum(map(len, found.values()))

    return await source.shared(
        ("schedules of all", *names), ask, fresh=SCHEDULES_FRESH_SECONDS, longest=SCHEDULES_FRESH_SECONDS
    )


async def stored(source: SceneSource, queue: str, fresh: float = 10.0) -> list[Schedule]:
    """Return the schedules that a queue stores. NotThere if there is no such queue."""
    return await of_queue(source, "schedules", queue, source.queue(queue).schedules.list, fresh)


async def settings(source: SceneSource, queue: str, fresh: float = CALM_FRESH_SECONDS) -> QueueConfig:
    """Return the settings of a queue. NotThere if there is no such queue."""
    return await of_queue(source, "settings", queue, source.queue(queue).settings, fresh)


async def controls(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> Controls:
    """Return the pauses, limits, weights and plans of a queue. NotThere if there is no such queue."""
    return await of_queue(source, "controls", queue, source.queue(queue).controls, fresh)


async def is_unread(source: SceneSource, queue: str, fresh: float = FRESH_SECONDS) -> bool:
    """Return whether messages wait in a queue that nobody reads. NotThere if there is no such queue."""
    found = await verdict(source, queue, fresh)
    return crew.is_unread(found, await outlook(source, queue, fresh) if found.kind == "redis_full" else None)


async def of_each(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Ask of several queues, a few at once. Return the answers of those that are there and may be asked."""
    gate, found = asyncio.Semaphore(MAX_QUEUES_AT_ONCE), dict[str, T]()

    async def of_one(name: str) -> None:
        async with gate:
            try:
                answer = await allowed(ask(name))
            except NotThere:  # it was deleted meanwhile
                return
            if answer is not None:
                found[name] = answer

    await asyncio.gather(*(of_one(name) for name in names))
    return {name: found[name] for name in names if name in found}


async def of_queue(
    source: SceneSource,
    what: str,
    queue: str,
    ask: Callable[[], Awaitable[T]],
    fresh: float,
    *,
    longest: float = MAX_REST,
) -> T:
    """Ask something of a *queue*. NotThere if there is no such queue."""
    try:
        return await source.shared((what, queue), ask, fresh=fresh, longest=longest)
    except QueueMissing:
        raise NotThere(f"There is no queue {queue}.") from None


async def allowed(asked: Awaitable[T]) -> T | None:
    """Return what is answered; None if the page's user of Redis may not ask that."""
    try:
        return await asked
    except BackendTimeout:
        raise
    except BackendError:
        return None
