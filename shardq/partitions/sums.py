"""The numbers of a queue's partitions together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.model import QueueStats
from shardq.model.stats import COUNTS

_ADDED = ("backlog", "in_flight", "delayed", "dead", *COUNTS)


def sum_of(queue: str, found: Sequence[QueueStats]) -> QueueStats:
    """Return the numbers of *queue*: those of its partitions added, each of an instant of its own.

    What is of one moment or of the queue as a whole is that of the head, such as its id and a pause.
    """
    head = found[0]
    ages = [each.oldest_age for each in found if each.oldest_age is not None]
    due = [each.next_due for each in found if each.next_due is not None]
    return replace(
        head,
        queue=queue,
        time=max(each.time for each in found),
        oldest_age=max(ages, default=None),
        oldest_age_is_sampled=any(each.oldest_age_is_sampled for each in found),
        next_due=min(due, default=None),
        streams=tuple([length for each in found for length in each.streams]),
        **{name: sum(getattr(each, name) for each in found) for name in _ADDED},
    )
