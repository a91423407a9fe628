"""How long messages waited for a delivery that could be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.history import History, Lease


class Wait(NamedTuple):
    """One delivery: it was possible from `since`, and was made at `at`. `is_first` is the first of its message."""

    id: str
    since: float
    at: float
    is_first: bool


def waits(found: History) -> Iterator[Wait]:
    """Each delivery after a moment that is known: a write's answer or a nack, with its delay, or the end of a lease.

    A message that may end without an ack is left out, since a dead letter comes again when somebody wants it.
    """
    of = defaultdict[str, list[Lease]](list)
    for lease in found.leases:
        if lease.id not in found.dropped:
            of[lease.id].append(lease)
    for message_id, leases in of.items():
        leases.sort(key=lambda lease: lease.at)
        since, is_first = found.due.get(leases[0].value, math.nan), True
        for lease in leases:
            if not math.isnan(since):
                yield Wait(message_id, since, lease.at, is_first)
            since, is_first = _free(lease), False


def _free(lease: Lease) -> float:
    """When a message could be delivered again."""
    if lease.verb == "nack" and lease.ok and lease.settling is not None:
        return lease.settled + lease.delay
    return lease.ends
