"""The numbers of a queue."""

from __future__ import annotations

from typing import Final

import msgspec


class QueueStats(msgspec.Struct, frozen=True):
    """One queue at one instant, as one atomic script saw it. Ages are seconds of the server's clock.

    `oldest_age` is for how long the message that waits longest could be delivered: since it was written, came due, was
    given back, or its lease ended; messages that wait for a limit or a pause do not count, so it is None while the
    whole queue is paused. It is exact, unless `oldest_age_is_sampled`: then more shard keys, given back messages or
    streams wait than one call looks at, and a message may have waited longer than that. `streams` has the number of
    undelivered messages of each stream; with more than 1,000 streams these are from a moment later.

    All numbers are of the instant `time`, also if nobody has read for a while: leases that have ended, messages that
    came due and pauses that are over count as what they are. With more than 128 ended leases, or shard keys with
    messages that came due, their effect on limits is estimated. A message that is past its deadline counts until a
    read drops it, and one that had its last delivery until a read makes it a dead letter.

    `held_back` counts the messages of the backlog that wait in the overflows of their shard keys; `limited` those of
    them that wait for a limit of their shard key or the end of its pause, and not for their turn; a pause of the whole
    queue adds to neither. `runnable` is what free workers would be delivered now: the backlog without `limited`, and no
    more than the limits of the whole queue allow; 0 while it is paused. Scale by it.
    `tenants_waiting` is how many shard keys (or parents) wait for a turn, besides those that have messages in streams.

    `retrying` counts the delayed messages that were delivered before and wait for their next try. `failed` counts tries
    that failed, as `Queue.failures` groups them.

    `delivered` counts deliveries, `redelivered` those of them of messages that had been delivered before: their lease
    ended, or they were given back. `next_due` is when the next delayed message comes due, in seconds since 1970, None
    if none is delayed; `due_soon` counts those that come due within 60 seconds. Where more than 128 shard keys have
    something to come, `due_soon` is estimated, and `next_due` may be too early.

    If the whole queue is paused, `paused_until` is the end of that in seconds since 1970, `math.inf` without an end,
    and `paused_since`, `paused_by` and `paused_note` tell since when, who did it and why. Else it is None.
    (`controls()` has the pauses of shard keys.)

    `result_count` results and notes of progress are kept, and take `result_bytes` of memory; `results_refused` counts
    results that were not kept, since they were too large or there was no room.

    `id` tells the queue from others that had its name before and were deleted, or will have it later; '' if there is no
    such queue. It never changes, and begins with the time when the queue was made, in ms.

    `Queue.stats` returns one, of the queue whose name is `queue`. `backlog` messages wait, `delayed` are not due yet,
    `in_flight` are leased, and `dead` are dead letters. These count from the queue's beginning on: `written` messages
    were stored, `acked` were done, `dead_lettered` became dead letters; `expired` (after their deadline), `cancelled`
    and `purged` were removed without work. `dead_dropped` dead letters made room for others, `dead_deleted` were
    deleted or became too old, and `vanished` entries were deleted by another program. `wanted` is how many streams are
    written to, and `legacy` how many entries the legacy stream has.
    """

    queue: str
    time: float
    backlog: int
    in_flight: int
    delayed: int
    dead: int
    oldest_age: float | None
    streams: tuple[int, ...]
    wanted: int = 0
    written: int = 0
    acked: int = 0
    expired: int = 0
    cancelled: int = 0
    purged: int = 0
    dead_lettered: int = 0
    dead_dropped: int = 0
    dead_deleted: int = 0
    vanished: int = 0
    legacy: int = 0
    held_back: int = 0
    limited: int = 0
    runnable: int = 0
    tenants_waiting: int = 0
    retrying: int = 0
    result_count: int = 0
    result_bytes: int = 0
    results_refused: int = 0
    failed: int = 0
    redelivered: int = 0
    delivered: int = 0
    due_soon: int = 0
    next_due: float | None = None
    paused_until: float | None = None
    paused_since: float | None = None
    paused_by: str = ""
    paused_note: str = ""
    id: str = ""
    oldest_age_is_sampled: bool = False


_DEFAULTS: Final = QueueStats.__struct_defaults__
COUNTS: Final = tuple(
    name
    for name, default in zip(QueueStats.__struct_fields__[-len(_DEFAULTS) :], _DEFAULTS, strict=True)
    if default == 0 and default is not False
)
"""The names of what is 0 by default: counters, and numbers of now."""
