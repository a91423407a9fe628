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
from shardq.client.async_stands import AsyncStands
from shardq.client.leases import delivered
from shardq.client.parted import PartedAction, PartedDelivery, PartedJob, PartedPart, PartedQueue, spread
from shardq.errors import QueueMissing
from shardq.model import Message, Written
from shardq.model.message import messages_of
from shardq.ops.read.give_back import give_back_all
from shardq.ops.read.read import checked_wanted
from shardq.ops.write.outgoing import compose_all
from shardq.partitions.asking import has_moved
from shardq.partitions.parts import Parts
from shardq.partitions.reads import Rows, Wanted, read_turns
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
class AsyncPartitionedQueue(PartedQueue, AsyncQueue):
    """A queue that is spread over the nodes of a cluster, used as any other one.

    A shard key has its home in one of the partitions. There it is served as in a queue of one part. Ids of messages end
    in the number of the partition.
    """

    _kind_of_action = AsyncPartAction
    _kind_of_job = AsyncPartJob
    _kind_of_part = AsyncPartition

    async def _parts(self, timeout: float | None) -> Parts:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        known: Parts | None = self.state.parts
        if known is None:
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
        began = self._telemetry.begin() if watched() else None
        until = self.state.clock.monotonic() + block
        wanted = Wanted(count, visibility, max(until, self.state.until(timeout)), acking.parts)
        try:
            while True:
                parts = self.state.parts or parts
                try:
                    rows = await self._read_now(parts, wanted)
                except QueueMissing:
                    # One that is not there is left out if the map has changed; but of an ack the caller must hear.
                    if acking.is_open or not await self._client.run(has_moved(parts, wanted.until)):
                        raise
                    continue
                finally:
                    acking.note(self._telemetry, began)
                waited: Rows | None = rows
                wanted.acks = {}
                if not rows and self.state.clock.monotonic() < until:
                    waited = await self._stands(parts).wait(count, visibility, until)
                    parts = self.state.parts or parts
                if waited or (waited is not None and self.state.clock.monotonic() >= until):
                    break
                if waited is None:
                    return []
        except Exception as error:
            self._telemetry.read_failed(began, error)
            raise
        if began is not None:
            self._telemetry.read([row for some in waited.values() for row in some], began, batch=batch)
        return [
            each
            for number, some in waited.items()
            for each in delivered(AsyncPartDelivery, some, self._part(parts, number))
        ]

    async def _read_now(self, parts: Parts, wanted: Wanted) -> Rows:
        try:
            rows: Rows = await self._client.run(read_turns(parts, wanted))
        except asyncio.CancelledError:
            for number, each in wanted.granted.items():
                if each.holder or each.rows:
                    state = parts.at(number)
                    self._client._run_in_background(give_back_all(state, each, state.until()))
            raise
        return rows

    def _stands(self, parts: Parts) -> AsyncStands:
        with parts.lock:
            parts = self.state.parts or parts  # another map may have come
            if parts.common.stands is None:
                parts.common.stands = AsyncStands(self._client, parts)
            found: AsyncStands = parts.common.stands
            return found
