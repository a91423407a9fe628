"""What a queue's partitions say, together: numbers are added, lists joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from shardq.errors import ShardqError
from shardq.model import ActionStatus, Purged, QueueStats, Tenant
from shardq.model.action import ActionState
from shardq.model.failure import Failure
from shardq.model.stats import COUNTS
from shardq.ops.queue.outcome import fail_after
from shardq.protocol.ids import with_partition
from shardq.sharding import key_bytes

T = TypeVar("T")

_OF_STATS: Final = ("backlog", "in_flight", "delayed", "dead", *COUNTS)

_OF_TENANT: Final = (
    "backlog", "in_streams", "held_back", "limited", "delayed", "in_flight", "ahead", "dedup_keys", "dead",
    "result_bytes",
)  # fmt: skip

_OF_FAILURE: Final = ("retried", "dead", "recent", "tenants_lately")
MAX_FAILURES: Final = 200

_ORDERS: Final[Mapping[str, str]] = {
    "oldest": "oldest_age", "time": "ahead", "dedup": "dedup_keys", "results": "result_bytes",
}  # fmt: skip
"""What a tenant has most of, where an order of tenants has another name than that."""

_STATES: Final[Sequence[ActionState]] = ("running", "stopping", "abandoned", "failed", "stopped", "done")
"""An action is over in all partitions, or not yet: the first of these that is in any."""


def total(found: Sequence[int]) -> int:
    """Return the sum of numbers."""
    return sum(found)


def counted(found: Sequence[int | ShardqError]) -> int:
    """Return the sum of numbers of what was done. If a partition failed, raise its error, or PartlyDone."""
    done = sum(each for each in found if isinstance(each, int))
    if failed := next((each for each in found if isinstance(each, ShardqError)), None):
        fail_after(done + sum(getattr(each, "done", 0) for each in found), failed)
    return done


def statistics(found: Sequence[QueueStats]) -> QueueStats:
    """Return the numbers of a queue: those of its partitions added, each of an instant of its own.

    What is of one moment or of the queue as a whole is that of the head, such as its name, its id and a pause.
    """
    due = [each.next_due for each in found if each.next_due is not None]
    return replace(
        found[0],
        time=max(each.time for each in found),
        oldest_age=_longest(each.oldest_age for each in found),
        oldest_age_is_sampled=any(each.oldest_age_is_sampled for each in found),
        next_due=min(due, default=None),
        streams=tuple([length for each in found for length in each.streams]),
        **_added(found, _OF_STATS),
    )


def purged(found: Sequence[Purged]) -> Purged:
    """Return the numbers of several purges together."""
    return Purged(**_added(found, Purged.__struct_fields__))


def tenants(found: Sequence[Sequence[Tenant]], order: str) -> list[Tenant]:
    """Return the tenants of all partitions, those first that have most of what *order* names.

    One whose home has moved, or to whom a client without the map wrote, may be in several.
    """
    together = [
        replace(some[0], oldest_age=_longest(each.oldest_age for each in some), **_added(some, _OF_TENANT))
        for some in _groups([each for part in found for each in part], lambda each: key_bytes(each.shard_key))
    ]
    name = _ORDERS.get(order, order)
    return sorted(together, key=lambda each: (-(getattr(each, name) or 0), key_bytes(each.shard_key)))


def failures(found: Sequence[Sequence[Failure]]) -> list[Failure]:
    """Return what fails in all partitions, the worst first."""
    every = [
        replace(each, newest=with_partition(each.newest, number)) for number, some in enumerate(found) for each in some
    ]
    together = [_failure(some) for some in _groups(every, lambda each: (each.task, each.error_type, each.reason))]
    return sorted(together, key=lambda each: (-each.recent, -each.last))[:MAX_FAILURES]


def _failure(some: Sequence[Failure]) -> Failure:
    """Return one group of failures, of what partitions say of it. A shard key is in one of them."""
    return replace(
        max(some, key=lambda each: each.last),
        first=min(each.first for each in some),
        minutes=tuple([sum(each) for each in zip(*[each.minutes for each in some], strict=True)]),
        tenants=tuple([name for each in some for name in each.tenants][: max(len(each.tenants) for each in some)]),
        **_added(some, _OF_FAILURE),
    )


def actions(found: Sequence[Sequence[ActionStatus]]) -> list[ActionStatus]:
    """Return the actions of a queue, the newest first: one has the same id in all partitions."""
    together = map(action, _groups([each for some in found for each in some], lambda each: each.id))
    return sorted(together, key=lambda each: -each.started)


def action(some: Sequence[ActionStatus]) -> ActionStatus:
    """Return one action, of what partitions say of it."""
    state = next(state for state in _STATES if any(each.state == state for each in some))
    left = (
        None if any(each.left is None and not each.is_over for each in some) else sum(each.left or 0 for each in some)
    )
    rates = [each.rate for each in some]
    return replace(
        some[0],
        state=state,
        started=min(each.started for each in some),
        heard=max(each.heard for each in some),
        left=left,
        rate=None if None in rates else sum(each or 0.0 for each in rates),
        problem=next((each.problem for each in some if each.problem), ""),
        **_added(some, ("done", "passed")),
    )


def _groups(found: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    groups: dict[object, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _added(found: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: sum(getattr(each, name) for each in found) for name in names}


def _longest(ages: Iterable[float | None]) -> float | None:
    return max([each for each in ages if each is not None], default=None)
