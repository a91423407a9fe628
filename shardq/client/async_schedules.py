"""The schedules that users store in a queue, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from shardq.model import Written
from shardq.model.schedule import CatchUp, Schedule
from shardq.ops import schedules
from shardq.ops.queue.who import Who

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue

All: TypeAlias = list[Schedule]


class AsyncSchedules:
    """Schedules that are made while the program runs, by its users say: `queue.schedules` (docs/schedules.md).

    The queue stores up to `max_schedules` of them. Workers that run `Tasks` write their calls.

    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_schedules=100)
    >>> schedule = await queue.schedules.add("digest", "hello", shard_key="acme", cron="0 8 * * *", tz="Europe/Paris")
    >>> schedule.when
    '0 8 * * * (Europe/Paris)'
    """

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue

    async def add(
        self,
        name: str,
        payload: Any,
        *,
        shard_key: str | bytes,
        cron: str | None = None,
        tz: str = "UTC",
        every: int | None = None,
        catch_up: CatchUp = "skip",
        paused: bool = False,
        timeout: float | None = None,
    ) -> Schedule:
        """Store a schedule, or change the one that is called *name*. Its slots count from now on.

        At the times of the *cron* line in the zone *tz*, or each *every* whole seconds (60 or more), *payload* is
        written for *shard_key*; usually it is a call of a task. *catch_up* says what becomes of slots for which no
        worker was there. Workers hear of the schedule within a minute, so its first slot may be late by that.

        ConfigError (bad argument, or a queue without `max_schedules`), CodecError and QueueFull: nothing was changed.

        >>> schedule = await queue.schedules.add("sweep", "hello", shard_key="acme", every=3600)
        >>> schedule.when
        'every 3600 s'
        """
        queue = self._queue
        op = schedules.stored.add(
            queue.state, queue.client.codecs, name, payload, shard_key, cron, tz, every, catch_up, paused, timeout
        )
        return await queue.client.run(op)

    async def pause(self, name: str, *, timeout: float | None = None) -> None:
        """Let the slots of a schedule be left out from now on. ScheduleNotFound.

        Calls that are written already, up to 75 s before their slots, still come.

        >>> await queue.schedules.pause("digest")
        >>> [each.paused for each in await queue.schedules.list()]
        [True]
        """
        await self._queue.client.run(schedules.stored.pause(self._queue.state, name, True, timeout))

    async def resume(self, name: str, *, timeout: float | None = None) -> None:
        """Let a schedule continue with its next slot. The slots since its pause are not caught up. ScheduleNotFound.

        >>> await queue.schedules.pause("digest")
        >>> await queue.schedules.resume("digest")
        >>> [each.paused for each in await queue.schedules.list()]
        [False]
        """
        await self._queue.client.run(schedules.stored.pause(self._queue.state, name, False, timeout))

    async def run(
        self, name: str, *, by: str | None = None, note: str | None = None, timeout: float | None = None
    ) -> Written:
        """Write the call of a schedule now, besides its slots, also of one that is paused. Return its id.

        *by* and *note* say in the journal who asked for it (by default nobody, as of all writes) and why.
        ScheduleNotFound if there is none of this name.

        >>> message_id = await queue.schedules.run("digest", by="ada")
        >>> await queue.len()
        1
        """
        return await self._queue.client.run(schedules.stored.run(self._queue.state, name, timeout, Who(by, note)))

    async def remove(self, name: str, *, timeout: float | None = None) -> bool:
        """Remove a schedule. Return whether there was one. Calls that are written already still come.

        It raises only what every call may raise.

        >>> await queue.schedules.remove("digest"), await queue.schedules.remove("digest")
        (True, False)
        """
        return await self._queue.client.run(schedules.stored.remove(self._queue.state, name, timeout))

    async def list(self, *, timeout: float | None = None) -> All:
        """Return all stored schedules, by their names. It raises only what every call may raise.

        >>> [(each.name, each.shard_key) for each in await queue.schedules.list()]
        [('digest', 'acme')]
        """
        return await self._queue.client.run(schedules.stored.listed(self._queue.state, timeout))
