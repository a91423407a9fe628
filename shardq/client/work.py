"""What the work on deliveries took, by the local monotonic clock: a settle tells it, so that turns are fair in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from shardq.clock import Clock
from shardq.model import Received
from shardq.protocol.lease import is_charged, spelled_cost

if TYPE_CHECKING:
    from shardq.client.leases import LeasedDelivery


class Work:
    """The work on what one read brought. It counts from the read on, or from when some of it was last settled.

    Deliveries that are settled together share the time since then: a worker that handles one message after the other
    and settles each, and one that settles a batch at its end, are charged the same.
    """

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()

    def share(self, number: int) -> float:
        """Return what each of *number* messages took that are settled now, in seconds."""
        since, self._since = self._since, self._clock.monotonic()
        return (self._since - since) / number


def measured(deliveries: Sequence[LeasedDelivery]) -> list[Received]:
    """Return what Redis is told of these deliveries, which are settled together: with the cost of those that have one.

    Only what was delivered while others waited is charged.
    """
    received = [each.received for each in deliveries]
    charged = [at for at, each in enumerate(received) if is_charged(each.token)]
    if not charged:
        return received
    together = Counter([each.work for at in charged if (each := deliveries[at]).took is None])
    shares = {work: work.share(number) for work, number in together.items()}
    for at in charged:
        each = deliveries[at]
        if each.took is None:
            each.took = shares[each.work]  # if Redis does not answer, another try tells the same
        cost = spelled_cost(each.took if each.cost is None else each.cost, is_told=each.cost is not None)
        received[at] = msgspec.structs.replace(received[at], cost=cost)
    return received


def measured_one(delivery: LeasedDelivery) -> Received:
    """Do as `measured`, for a single one."""
    return measured((delivery,))[0] if is_charged(delivery.received.token) else delivery.received


def measured_so_far(delivery: LeasedDelivery) -> Received:
    """Return what Redis is told of a delivery whose lease is extended: with the cost since it was last charged."""
    received = delivery.received
    if delivery.cost is not None or not is_charged(received.token):
        return received
    return msgspec.structs.replace(received, cost=spelled_cost(delivery.work.share(1), is_told=False))
