"""The time of the work on deliveries, by the local monotonic clock: a settle reports it, for turns fair in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shardq.clock import Clock
from shardq.model import Received
from shardq.ops.settle.command import spelled_cost

if TYPE_CHECKING:
    from shardq.client.leases import LeasedDelivery


class Work(msgspec.Struct, eq=False):
    """The work on what one read brought. It counts from the read on, or from when some of it was last settled.

    Deliveries that are settled together share the time since then: a worker that handles one message after the other
    and settles each, and one that settles a batch at its end, are charged the same.
    """

    clock: Clock
    since: float

    def share(self, number: int) -> float:
        """Return what each of *number* messages took that are settled now, in seconds."""
        since, self.since = self.since, self.clock.monotonic()
        return (self.since - since) / number


def measured(deliveries: Sequence[LeasedDelivery]) -> list[Received]:
    """Return the texts of these deliveries for Redis, which are settled together: with the cost of those that have one.

    The time is reported only for deliveries while others waited, or where the queue keeps a journal.
    """
    if len(deliveries) == 1:
        return [measured_one(deliveries[0])]
    together = Counter([each.work for each in deliveries if each.received.timed and each.took is None])
    shares = {work: work.share(number) for work, number in together.items()}
    return [_charged(each, shares.get(each.work, 0.0)) if each.received.timed else each.received for each in deliveries]


def measured_one(delivery: LeasedDelivery) -> Received:
    """Do as `measured`, for a single one."""
    if not delivery.received.timed:
        return delivery.received
    return _charged(delivery, delivery.work.share(1) if delivery.took is None else 0.0)


def measured_so_far(delivery: LeasedDelivery) -> Received:
    """Return the text for Redis of a delivery whose lease is extended: with the cost since the last extension.

    Also of one that was delivered while nobody waited: it is charged if somebody does by now.
    """
    if delivery.cost is not None:
        return delivery.received
    share = delivery.work.share(1)
    delivery.besides += share
    return replace(delivery.received, cost=spelled_cost(share, is_told=False))


def _charged(delivery: LeasedDelivery, share: float) -> Received:
    if delivery.took is None:
        delivery.took = share  # if Redis does not answer, another try tells the same
    told = delivery._cost
    cost = spelled_cost(delivery.took if told is None else told, is_told=told is not None, ran=_ran(delivery))
    return replace(delivery.received, cost=cost)


def _ran(delivery: LeasedDelivery) -> float | None:
    """Return for how long the work on it continued, if the journal is to know and that is not what it costs."""
    if (delivery._cost is None and not delivery.besides) or not delivery._queue.state.config.journal:
        return None
    return max(0.0, (delivery.took or 0.0) + delivery.besides)
