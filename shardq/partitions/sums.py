"""The answers of a queue's partitions, together: numbers are added, lists joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from msgspec.structs import replace

from shardq.errors import OutcomeUnknown, ShardqError
from shardq.model import ActionStatus, JournalPage, Purged, Tenant
from shardq.model.action import ActionState
from shardq.model.event import packed
from shardq.ops.queue.outcome import fail_after
from shardq.outlook.together import added, groups, longest
from shardq.protocol.ids import with_partition
from shardq.protocol.replies import created_ms
from shardq.sharding import key_bytes

_OF_TENANT: Final = (
    "backlog", "in_streams", "held_back", "limited", "delayed", "in_flight", "ahead", "dedup_keys", "dead",
    "result_bytes",
)  # fmt: skip

_ORDERS: Final[Mapping[str, str]] = {
    "oldest": "oldest_age", "time": "ahead", "dedup": "dedup_keys", "results": "result_bytes",
}  # fmt: skip
"""The measure of an order of tenants, where the order has another name than that."""

_STATES: Final[Sequence[ActionState]] = ("running", "stopping", "abandoned", "failed", "stopped", "done")
"""An action is over in all partitions, or not yet: the first of these that is in any."""

MAX_EVENTS_BEFORE: Final = 10_000
"""Events before the first one of a journal that a position may be and is of it, as of `before`. Numbers begin with the
microsecond in which a journal did, and an earlier one has begun longer ago than that."""


def total(found: Sequence[int]) -> int:
    """Return the sum of numbers."""
    return sum(found)


def counted(found: Sequence[int | ShardqError]) -> int:
    """Return the sum of numbers of what was done. If a partition failed, raise its error, or PartlyDone."""
    done = sum(each for each in found if isinstance(each, int))
    _check_all(found, done)
    return done


def purged(found: Sequence[Purged | ShardqError]) -> Purged:
    """Return the numbers of several purges together. If a partition failed, raise its error, or PartlyDone."""
    numbers = Purged(**added([each for each in found if isinstance(each, Purged)], Purged.__struct_fields__))
    _check_all(found, numbers.total + numbers.cancelled)
    return numbers


def _check_all(found: Sequence[object], done: int) -> None:
    """Raise the error of a partition that failed where *done* others are done; of several one that is in doubt."""
    failed = [each for each in found if isinstance(each, ShardqError)]
    if failed:
        error = next((each for each in failed if isinstance(each, OutcomeUnknown)), failed[0])
        fail_after(done + sum(getattr(each, "done", 0) for each in failed), error)


def tenants(found: Sequence[Sequence[Tenant]], order: str) -> list[Tenant]:
    """Return the tenants of all partitions, those first that have most of what *order* names.

    One whose home has moved, or to whom a client without the map wrote, may be in several.
    """
    together = [
        replace(some[0], oldest_age=longest(each.oldest_age for each in some), **added(some, _OF_TENANT))
        for some in groups([each for part in found for each in part], lambda each: key_bytes(each.shard_key))
    ]
    name = _ORDERS.get(order, order)
    return sorted(together, key=lambda each: (-(getattr(each, name) or 0), key_bytes(each.shard_key)))


def actions(found: Sequence[Sequence[ActionStatus]]) -> list[ActionStatus]:
    """Return the actions of a queue, the newest first: one has the same id in all partitions."""
    together = map(action, groups([each for some in found for each in some], lambda each: each.id))
    return sorted(together, key=lambda each: -each.started)


def action(some: Sequence[ActionStatus]) -> ActionStatus:
    """Return one action, from those of the partitions."""
    state = next(state for state in _STATES if any(each.state == state for each in some))
    left = (
        None if any(each.left is None and not each.is_over for each in some) else sum(each.left or 0 for each in some)
    )
    rates, limits = [each.rate for each in some], [each.limit for each in some]
    return replace(
        some[0],
        state=state,
        started=min(each.started for each in some),
        heard=max(each.heard for each in some),
        left=left,
        rate=None if None in rates else sum(each or 0.0 for each in rates),
        limit=None if None in limits else sum(each or 0 for each in limits),
        problem=next((each.problem for each in some if each.problem), ""),
        **added(some, ("done", "passed")),
    )


def journal(found: Sequence[JournalPage], points: Sequence[int], count: int) -> JournalPage:
    """Return the first *count* events of all partitions, by their times, of a page of each after its point.

    Those of one partition keep their order. Events beyond come with a later page. The head alone reports actions on all
    partitions.
    """
    rows = [
        (time, at, number)
        for number, page in enumerate(found)
        for at, time in enumerate(accumulate([each.time for each in page.events], max))
        if number == 0 or page.events[at].message_id
    ]
    first, later = (ordered := sorted(rows))[:count], {number for _, _, number in ordered[count:]}
    passed = {number: at + 1 for _, at, number in first}
    cut = [
        _cut(page, points[number], passed.get(number, 0)) if number in later else page
        for number, page in enumerate(found)
    ]
    events = [(number, found[number].events[at]) for _, at, number in first]
    lost = {
        number: page.lost + (page.position != points[number] and _is_remade(found, points, number))
        for number, page in enumerate(cut)
    }
    return JournalPage(
        [replace(each, message_id=_placed(each.message_id, number)) for number, each in events],
        position=packed(each.position for each in cut),
        latest=packed(each.latest for each in cut),
        lost=sum(lost.values()),
        queue_id=found[0].queue_id,
        lost_in={number: count for number, count in lost.items() if count},
    )


def _is_remade(found: Sequence[JournalPage], points: Sequence[int], number: int) -> bool:
    """Return whether a partition was removed and recreated since it was read, and the queue was not.

    Its journal went with it, and nobody knows how much of that was not read.
    """
    return number > 0 and _is_of_former(found[number], points[number]) and not _is_of_former(found[0], points[0])


def _is_of_former(page: JournalPage, point: int) -> bool:
    """Return whether a position is of a journal that was there before that of *page*."""
    return 0 < point < created_ms(page.queue_id) * 1000 - MAX_EVENTS_BEFORE


def _placed(message_id: str, number: int) -> str:
    """Return the id of a message with its partition; '' of what happened to none."""
    return message_id and with_partition(message_id, number)


def _cut(page: JournalPage, point: int, passed: int) -> JournalPage:
    """Return the answer of a page after *point* if only *passed* of its events are passed now."""
    if not passed:
        return replace(page, position=point, lost=0)
    start, position = page.position - page.lost - len(page.events), page.events[passed - 1].number
    return replace(page, position=position, lost=position - start - passed)
