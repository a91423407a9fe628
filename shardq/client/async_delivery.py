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
    """One message, leased to you until `deadline`. Settle it: ack, nack or reject.

    LeaseLost means that the message is not yours any more. MessageCancelled means that it was cancelled. Every call may
    raise what `AsyncQueue` says.
    """

    __slots__ = ("_queue",)

    def __init__(self, received: Received, queue: AsyncQueue) -> None:
        super().__init__(received, queue._codecs, queue.state.clock)
        self._queue = queue

    @property
    def queue(self) -> AsyncQueue:
        """The queue that it was read from."""
        return self._queue

    async def ack(self, *, timeout: float | None = None) -> None:
        """Say that the work is done: the message is forgotten."""
        await self._queue._settle("ack", self.received, settle.ack(self._queue.state, [self.received], timeout))
        self.answered = True

    async def nack(self, *, delay: float = 0.0, error: str = "", timeout: float | None = None) -> None:
        """Give the message back. It is delivered again after *delay* seconds, and *error* is kept as its `last_error`.

        After the last delivery that the queue's `max_deliveries` allows, it becomes a dead letter.
        """
        seconds("delay", delay, 0, MAX_BLOCK)
        await self._queue._settle(
            "nack", self.received, settle.nack(self._queue.state, [self.received], delay, error, timeout)
        )
        self.answered = True

    async def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Move the message to the dead letters, with *reason*."""
        await self._queue._settle(
            "reject", self.received, settle.reject(self._queue.state, [self.received], reason, timeout)
        )
        self.answered = True

    async def extend(self, duration: float, *, timeout: float | None = None) -> None:
        """Let the lease end *duration* seconds from now."""
        lease_time("duration", duration)
        sent = self._clock.monotonic()
        await self._queue._settle(
            "extend", self.received, settle.extend(self._queue.state, [self.received], duration, timeout)
        )
        self.received = extended(self.received, sent, duration)

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """A tracing span around the work on this delivery. It settles nothing."""
        with self._queue._telemetry.processing(self.received):
            yield
