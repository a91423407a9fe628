"""Questions that several screens ask: asked under one name, they are asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from shardq.dashboard.scene import NotThere
from shardq.dashboard.source import FRESH, LONGEST_REST, Source
from shardq.errors import BackendError, BackendTimeout, QueueMissing
from shardq.model import Controls, QueueConfig, QueueStats, Schedule
from shardq.model.minute import Minute
from shardq.model.outlook import Outlook
from shardq.model.verdict import Verdict
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect.outlook import everything
from shardq.outlook import crew
from shardq.outlook.facts import Facts
from shardq.outlook.outlook import outlook_of
from shardq.outlook.verdict import verdict_of

T = TypeVar("T")
CALM: Final = 10.0
"""Seconds for which numbers are fresh of a queue that needs nobody, where there are many."""
MISSED: Final = 10.0
"""Seconds without a beat of any worker of a queue, from which on it is not calm: they may be dead."""
LONGEST: Final = 4.0
"""Seconds for which numbers of a queue are fresh at most, however long they took: a drill is told of within 35 s."""
RECENT: Final = 15.0
"""Seconds for which numbers tell, beside those of now, whether somebody reads."""
FEW: Final = 10
"""Queues that are all looked at as often as one."""
MAX_QUEUES: Final = 500
"""Queues that are looked at where all are."""
AT_ONCE: Final = 8
"""Queues that are asked for at a time where all are looked at."""


class Look(NamedTuple):
    """A queue at one instant: its numbers, and what is reckoned of them."""

    facts: Facts
    outlook: Outlook
    verdict: Verdict

    @property
    def stats(self) -> QueueStats:
        """The numbers."""
        return self.facts.stats


async def queues(source: Source) -> list[str]:
    """Return the names of all queues."""
    return await source.shared(("queues",), source.client.queues, fresh=5.0)


async def look(source: Source, queue: str, fresh: float = FRESH) -> Look:
    """Return all that is known of a queue at one instant. NotThere if there is no such queue."""
    question = ("look", queue)
    last: Look | None = source.last(question)
    before = last.stats if last and (source.age(question) or 0.0) < RECENT else None

    async def ask() -> Look:
        facts = await source.client.run(everything(source.queue(queue).state, before))
        outlook = outlook_of(facts)
        return Look(facts, outlook, verdict_of(facts, outlook))

    return await of_queue(source, "look", queue, ask, fresh, longest=LONGEST)


async def looks(source: Source, names: Sequence[str]) -> dict[str, Look | None]:
    """Return what is known of these queues, 500 at most, without those that are gone. None: one may not look at it.

    Where there are many, those that need nobody are looked at each 10 s, and the others each 2 s. Those whose workers
    miss their beats are among the others, so that a death is told of as soon as where there are few.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, Look | None]:
        before: Look | None = source.last(("look", name))
        is_calm = len(names) > FEW and before is not None and _is_calm(before)
        async with places:
            return name, await allowed(look(source, name, CALM if is_calm else FRESH))

    found = await asyncio.gather(*map(one, names[:MAX_QUEUES]), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, NotThere):
            raise each
    return dict(each for each in found if not isinstance(each, BaseException))


def _is_calm(before: Look) -> bool:
    facts = before.facts
    heard = max((each.heard for each in facts.working), default=facts.now)
    return before.verdict.severity == "good" and facts.now - heard < MISSED


async def stats(source: Source, queue: str, fresh: float = FRESH) -> QueueStats:
    """Return the numbers of a queue, also to a user of Redis who may read no more. NotThere if there is no queue."""
    found = await allowed(look(source, queue, fresh))
    if found is not None:
        return found.stats
    return await of_queue(source, "stats", queue, source.queue(queue).stats, fresh)


async def outlook(source: Source, queue: str, fresh: float = FRESH) -> Outlook:
    """Return what becomes of what waits in a queue. NotThere if there is no such queue."""
    return (await look(source, queue, fresh)).outlook


async def verdict(source: Source, queue: str, fresh: float = FRESH) -> Verdict:
    """Return how a queue is. NotThere if there is no such queue."""
    return (await look(source, queue, fresh)).verdict


async def workers(source: Source, queue: str, fresh: float = 5.0) -> list[WorkerStatus]:
    """Return the workers of a queue, also those that are gone. NotThere if there is no such queue."""
    return await of_queue(source, "workers", queue, source.queue(queue).workers, fresh)


async def history(source: Source, queue: str, minutes: int = 60, fresh: float = 10.0) -> list[Minute]:
    """Return the last *minutes* of a queue. NotThere if there is no such queue."""
    admin = source.queue(queue)
    return await of_queue(source, f"history {minutes}", queue, lambda: admin.history(minutes), fresh)


async def schedules(source: Source, queue: str, fresh: float = 30.0) -> int:
    """Return how many schedules a queue has. NotThere if there is no such queue."""
    return len(await stored(source, queue, fresh))


async def stored(source: Source, queue: str, fresh: float = 10.0) -> list[Schedule]:
    """Return the schedules that a queue stores. NotThere if there is no such queue."""
    return await of_queue(source, "schedules", queue, source.queue(queue).schedules.list, fresh)


async def settings(source: Source, queue: str, fresh: float = CALM) -> QueueConfig:
    """Return the settings of a queue. NotThere if there is no such queue."""
    return await of_queue(source, "settings", queue, source.queue(queue).settings, fresh)


async def controls(source: Source, queue: str, fresh: float = FRESH) -> Controls:
    """Return the pauses, limits, weights and plans of a queue. NotThere if there is no such queue."""
    return await of_queue(source, "controls", queue, source.queue(queue).controls, fresh)


async def is_unread(source: Source, queue: str, fresh: float = FRESH) -> bool:
    """Return whether messages wait in a queue that nobody reads. NotThere if there is no such queue."""
    found = await verdict(source, queue, fresh)
    return crew.is_unread(found, await outlook(source, queue, fresh) if found.kind == "redis_full" else None)


async def of_each(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Ask of several queues, a few at once. Return the answers of those that are there and may be asked."""
    gate, found = asyncio.Semaphore(AT_ONCE), dict[str, T]()

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
    source: Source,
    what: str,
    queue: str,
    ask: Callable[[], Awaitable[T]],
    fresh: float,
    *,
    longest: float = LONGEST_REST,
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
