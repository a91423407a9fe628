"""The answers of a queue's partitions, together: numbers are added, lists joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from shardq.model import QueueStats
from shardq.model.failure import Failure
from shardq.model.stats import COUNTS
from shardq.model.waiter import Waiter, Waiters
from shardq.outlook.facts import ServerMemory
from shardq.sharding import key_bytes

T = TypeVar("T")

_OF_STATS: Final = ("backlog", "in_flight", "delayed", "dead", *COUNTS)
_OF_FAILURE: Final = ("retried", "dead", "recent", "tenants_lately")
_OF_WAITER: Final = ("in_streams", "held_back", "in_flight", "delayed", "retrying")
MAX_FAILURES: Final = 200


def statistics(found: Sequence[QueueStats]) -> QueueStats:
    """Return the numbers of a queue: those of its partitions added, each of an instant of its own.

    Facts of one moment or of the queue as a whole are those of the head, such as its name, its id and a pause.
    """
    due = [each.next_due for each in found if each.next_due is not None]
    return replace(
        found[0],
        time=max(each.time for each in found),
        oldest_age=longest(each.oldest_age for each in found),
        oldest_age_is_sampled=any(each.oldest_age_is_sampled for each in found),
        next_due=min(due, default=None),
        streams=tuple([length for each in found for length in each.streams]),
        **added(found, _OF_STATS),
    )


def failures(found: Sequence[Sequence[Failure]]) -> list[Failure]:
    """Return what fails in all partitions, the worst first."""
    every = [each for some in found for each in some]
    together = [_failure(some) for some in groups(every, lambda each: (each.task, each.error_type, each.reason))]
    return sorted(together, key=lambda each: (-each.recent, -each.last))[:MAX_FAILURES]


def _failure(some: Sequence[Failure]) -> Failure:
    """Return one group of failures, from those of the partitions. A shard key is in one of them."""
    return replace(
        max(some, key=lambda each: each.last),
        first=min(each.first for each in some),
        minutes=tuple([sum(each) for each in zip(*[each.minutes for each in some], strict=True)]),
        tenants=tuple([name for each in some for name in each.tenants][: max(len(each.tenants) for each in some)]),
        **added(some, _OF_FAILURE),
    )


def waiters(found: Sequence[Waiters]) -> Waiters:
    """Return who waits in all partitions. The limits of the whole queue are the sums of their parts."""
    ends = [each.last_lease_end for each in found if each.last_lease_end is not None]
    written = [each.last_written for each in found if each.last_written is not None]
    every = groups([row for each in found for row in each.rows], lambda row: key_bytes(row.shard_key))
    return replace(
        found[0],
        time=max(each.time for each in found),
        rows=tuple(map(_waiter, every)),
        are_all=all(each.are_all for each in found),
        blocked_until=max(each.blocked_until for each in found),
        last_lease_end=max(ends, default=None),
        last_written=max(written, default=None),
        **added(found, ("total_in_flight", "total_rate")),
    )


def _waiter(some: Sequence[Waiter]) -> Waiter:
    """Return what one shard key has. It is in one partition, but for what is left where it was before."""
    most = max(some, key=lambda each: each.backlog + each.delayed)
    if len(some) == 1:
        return most
    together = replace(most, weight=max(each.weight for each in some), **added(some, _OF_WAITER))
    blocked = sum(each.blocked for each in some)
    return replace(together, allowance=together.backlog - blocked) if blocked else together


def memory(found: Sequence[ServerMemory | None]) -> ServerMemory | None:
    """Return what the node says that is fullest; None if none says it."""
    return max([each for each in found if each is not None], key=lambda each: each.share, default=None)


def groups(found: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Return what has the same key together, in the order in which keys come first."""
    by_key: dict[object, list[T]] = {}
    for each in found:
        by_key.setdefault(key(each), []).append(each)
    return list(by_key.values())


def added(found: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the sum of each field of these names."""
    return {name: sum(getattr(each, name) for each in found) for name in names}


def longest(ages: Iterable[float | None]) -> float | None:
    """Return the largest of the ages that are known."""
    return max([each for each in ages if each is not None], default=None)
