"""A delivery of a worker of a queue with partitions, as its async functions have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shardq.client.face import AsyncFace
from shardq.client.parted import PartedDelivery
from shardq.partitions.parts import known_beside

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.delivery import Delivery


class AsyncPartFace(AsyncFace):
    """Does as `AsyncFace`, for a delivery of one partition."""

    __slots__ = ()

    message_id = PartedDelivery.message_id
    partition = PartedDelivery.partition
    queue = PartedDelivery.queue

    def __init__(self, held: Delivery, queue: AsyncQueue) -> None:
        whole, delivery = cast("Any", queue), cast("Any", held)
        state = whole.state
        client = whole.client  # the loop's has not asked for the partitions, and need not
        parts = known_beside(state, delivery._queue.parts, client.state_of_part, client.codecs)
        super().__init__(held, whole._part(parts, delivery.partition))

    def _note(self, *, lost: bool) -> None:
        super()._note(lost=lost)
        cast("PartedDelivery", self._held).note_settled()
