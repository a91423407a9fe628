"""The deliveries that a read acks: which they are, and what it notes on them. Both clients share it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardq.client.leases import LeasedDelivery, note_results
from shardq.client.work import measured, measured_one
from shardq.errors import ConfigError
from shardq.model.delivery import received_of
from shardq.ops.read.acks import Acks
from shardq.ops.settle.command import ack_parts
from shardq.telemetry.telemetry import Began, Telemetry

if TYPE_CHECKING:
    from shardq.client.async_queue import AsyncQueue
    from shardq.client.queue import Queue

log = logging.getLogger("shardq")


def to_ack(queue: Queue | AsyncQueue, ack: Any) -> tuple[Sequence[LeasedDelivery], Acks | None]:
    """Return the deliveries of *ack* that a read is to ack: those that have no answer yet. Also what its call needs.

    ConfigError if *ack* is not a delivery or several of this *queue* and its client.
    """
    if ack is None:
        return (), None
    deliveries: Sequence[Any] = ack
    if isinstance(ack, LeasedDelivery):
        deliveries = (ack,)
        if not ack.answered and ack._queue is queue:  # the common case
            (part,) = ack_parts([measured_one(ack)])
            return deliveries, Acks(part)
    received_of(queue.name, deliveries)
    for each in deliveries:
        if each.queue.client is not queue.client:
            raise ConfigError(f"{each!r} was read by another client: ack it there")
    open_ones = [each for each in deliveries if not each.answered]
    return open_ones, Acks.of(measured(open_ones)) if open_ones else None


def note_answers(
    deliveries: Sequence[LeasedDelivery], acks: Acks | None, telemetry: Telemetry, began: Began | None
) -> None:
    """Note on each delivery what was answered: that it was, and whether its lease was lost. Log those that were."""
    if acks is None:
        return
    answered = [each for each in deliveries if each.received.token in acks.results]
    late = note_results(answered, [acks.results[each.received.token] for each in answered])
    if began is not None:
        telemetry.acked([each.received for each in answered], began, acks.answered_at)
    if late:
        log.warning("%d leases had ended before their ack, the first of message %s", len(late), late[0].message_id)
