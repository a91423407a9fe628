"""`AsyncPartitionedQueue`, for asyncio (`make twins` makes the one for threads).

Here is what needs an `await`: writes and reads. All else is in `parted`, once for both clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from shardq.client.async_action import AsyncAction
from shardq.client.async_delivery import AsyncDelivery
from shardq.client.async_job import AsyncJob
from shardq.client.async_queue import AsyncQueue
from shardq.client.async_schedules import AsyncSchedules
from shardq.client.async_stands import AsyncStands
from shardq.client.leases import delivered
from shardq.client.parted import (
    Acking,
    PartedAction,
    PartedDelivery,
    PartedJob,
    PartedPart,
    PartedQueue,
    PartedSchedules,
    spread,
)
from shardq.errors import QueueMissing
from shardq.model import Message, Written
from shardq.model.message import messages_of
from shardq.ops.read.read import checked_wanted
from shardq.ops.write.outgoing import compose_all
from shardq.partitions import upkeep
from shardq.partitions.losses import find_again
from shardq.partitions.parts import Parts
from shardq.partitions.reads import Rows, WantedRead, first_look, read_turns
from shardq.partitions.tidy import is_due, tidy
from shardq.partitions.writes import write_dealt
from shardq.telemetry.gate import watched

T = TypeVar("T")


class AsyncPartDelivery(PartedDelivery, AsyncDelivery):
    """A delivery of one partition of a queue."""

    __slots__ = ()


class AsyncPartJob(PartedJob, AsyncJob[T]):
    """A job in one of the partitions of a queue."""


class AsyncPartAction(PartedAction, AsyncAction):
    """An action on all partitions of a queue."""


class AsyncPartition(PartedPart, AsyncQueue):
    """One partition of a queue, which its deliveries are settled by."""


@spread
class AsyncPartSchedules(PartedSchedules, AsyncSchedules):
    """The schedules that users stored in a queue with partitions."""


@spread
class AsyncPartitionedQueue(PartedQueue, AsyncQueue):
    """A queue that is spread over the nodes of a cluster, used as any other one.

    A shard key has its home in one of the partitions. There it is served as in a queue of one part. Ids of messages end
    in the number of the partition.
    """

    _kind_of_action = AsyncPartAction
    _kind_of_job = AsyncPartJob
    _kind_of_part = AsyncPartition

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules that users stored in the queue, each in the home of its shard key."""
        return AsyncPartSchedules(self)

    async def _parts(self, timeout: float | None) -> Parts:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        known: Parts | None = self.state.parts
        if known is None or self._is_to_agree:
            known = await self._client.run(self._opened(timeout, create=True))
        known.fresh_for()
        return known

    async def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the home of its shard key: see `AsyncQueue.write`."""
        if self.state.parts is None:
            self._check_message(payload, options)
        await self._parts(options.get("timeout"))
        written = await super().write(payload, **options)
        return AsyncPartJob.of(self, written, written._returns) if isinstance(written, AsyncJob) else written

    async def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the homes of their shard keys, at once: see `AsyncQueue.write_many`."""
        with self._telemetry.writing(len(batch := messages_of(messages))) as told:
            composed = compose_all(self.state, self._codecs, batch, told.context)
            ids = await self._client.run(write_dealt(await self._parts(timeout), composed, timeout)) if composed else []
            told.wrote(ids)
            return ids

    async def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None,
        *,
        batch: bool,
    ) -> list[AsyncDelivery]:
        checked_wanted(block, visibility, prefer)
        acking = self._to_ack(ack)
        parts = await self._parts(timeout)
        now = self.state.clock.monotonic()
        if now >= parts.common.upkeep_at and upkeep.is_due(parts, now):
            self._client._run_in_background(upkeep.keep_up(parts))
        if parts.map.read > parts.map.written and is_due(parts):
            self._client._run_in_background(tidy(parts))
        acking.began = began = self._telemetry.begin() if watched() else None
        until, stands = now + block, self._stands(parts)
        call_until = max(until, self.state.until(timeout))
        wanted = WantedRead(count, visibility, call_until, block > 0, stands.aside, stands.offer, acking.parts)
        try:
            parts, rows = await self._search(parts, wanted, acking, until, timeout, batch=batch)
        except Exception as error:
            self._telemetry.read_failed(began, error)
            raise
        if rows is None:
            return []
        if began is not None and not acking.has_told:
            self._telemetry.read([row for some in rows.values() for row in some], began, batch=batch)
        return [
            each
            for number, some in rows.items()
            for each in delivered(AsyncPartDelivery, some, self._part(parts, number))
        ]

    async def _search(
        self, parts: Parts, wanted: WantedRead, acking: Acking, until: float, timeout: float | None, *, batch: bool
    ) -> tuple[Parts, Rows | None]:
        """Return what is there, or comes by local time *until*, and the partitions that it is of.

        None if the wait was ended from elsewhere.
        """
        while True:
            parts = self.state.parts or parts
            rows = await self._look(parts, wanted, acking, timeout, batch=batch)
            if rows is None:
                continue
            wanted.acks = {}
            if rows or self.state.clock.monotonic() >= until:
                return parts, rows
            waited = await self._stands(parts).wait(wanted.count, wanted.visibility, until)
            if waited or waited is None or self.state.clock.monotonic() >= until:
                return self.state.parts or parts, waited

    async def _look(
        self, parts: Parts, wanted: WantedRead, acking: Acking, timeout: float | None, *, batch: bool
    ) -> Rows | None:
        """Return what is there. None if a partition was not, and now is, or the map has changed: then look again."""
        try:
            if (first := first_look(parts, wanted, timeout)) is not None:
                found = await self._stands(parts).look(wanted, *first)
                if found is not None:
                    acking.looked(self._telemetry, found, batch=batch)
                if found:
                    return {first[0]: found}
            return await self._read_now(parts, wanted)
        except QueueMissing:
            # The caller of an ack must hear of it.
            if acking.is_open or self.state.clock.monotonic() >= wanted.until:
                raise
            await self._client.run(find_again(parts, wanted.until))
            wanted.begin()
            return None
        finally:
            acking.note(self._telemetry)

    async def _read_now(self, parts: Parts, wanted: WantedRead) -> Rows:
        try:
            rows: Rows = await self._client.run(read_turns(parts, wanted))
        except asyncio.CancelledError:
            self._stands(parts).give_back(wanted)
            raise
        return rows

    def _stands(self, parts: Parts) -> AsyncStands:
        with parts.lock:
            parts = self.state.parts or parts  # another map may have come
            if parts.common.stands is None:
                parts.common.stands = AsyncStands(self._client, parts)
            found: AsyncStands = parts.common.stands
            return found
