"""`AsyncDelivery`, for asyncio: the twin of `Delivery`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardq.arguments import MAX_BLOCK, lease_time, seconds
from shardq.model import DeliveryView, Received
from shardq.ops import settle
from shardq.ops.settle import extended

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue


class AsyncDelivery(DeliveryView):
    """The twin of `Delivery`."""

    __slots__ = ("_queue",)

    def __init__(self, received: Received, queue: AsyncQueue) -> None:
        super().__init__(received, queue._codecs, queue.state.clock)
        self._queue = queue

    @property
    def queue(self) -> AsyncQueue:
        """The queue that it was read from."""
        return self._queue

    async def ack(self, *, timeout: float | None = None) -> None:
        """As `Delivery.ack`."""
        await self._queue._settle("ack", self.received, settle.ack(self._queue.state, [self.received], timeout))

    async def nack(self, *, delay: float = 0.0, error: str = "", timeout: float | None = None) -> None:
        """As `Delivery.nack`."""
        seconds("delay", delay, 0, MAX_BLOCK)
        await self._queue._settle(
            "nack", self.received, settle.nack(self._queue.state, [self.received], delay, error, timeout)
        )

    async def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """As `Delivery.reject`."""
        await self._queue._settle(
            "reject", self.received, settle.reject(self._queue.state, [self.received], reason, timeout)
        )

    async def extend(self, duration: float, *, timeout: float | None = None) -> None:
        """As `Delivery.extend`."""
        lease_time("duration", duration)
        sent = self._clock.monotonic()
        await self._queue._settle(
            "extend", self.received, settle.extend(self._queue.state, [self.received], duration, timeout)
        )
        self.received = extended(self.received, sent, duration)

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """As `Delivery.processing`."""
        with self._queue._telemetry.processing(self.received):
            yield
