"""The fate of waiting messages: why they wait, when they are done, and what would help."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

WaitReason: TypeAlias = Literal["worker", "turn", "limit", "pause", "delay", "retry"]
"""For what a message waits: a worker (none reads the queue), a turn (others are served in between), a limit, the end
of a pause, its time (it was written for later), or its next try (it failed)."""

WAIT_REASONS: Final[tuple[WaitReason, ...]] = ("worker", "turn", "limit", "pause", "delay", "retry")

DrainState: TypeAlias = Literal["empty", "drains", "grows", "stands", "unknown"]
"""The future of the backlog.

"empty": nothing waits. "drains": it is served in `drain_seconds`. "grows": as much or more comes than is done.
"stands": nothing of it is delivered, since nobody reads, or the queue is paused. "unknown": nobody has seen enough of
the queue yet to say.
"""


class TenantOutlook(msgspec.Struct, frozen=True):
    """One shard key (with `parents`: a parent) with messages that wait.

    `waits` is its backlog and what of it is delayed. `reasons` says for what these messages wait: they add up to
    `waits`. The last message of its backlog is delivered in about `served_in` seconds; None if that cannot be said, or
    never happens as things stand. `weight` is its weight. `in_flight` are worked on; it may have at most
    `max_in_flight`; `rate` of its messages are delivered in a second at most (0: any number). These are in force now:
    its own limits, its plan's, or what the queue's settings say. It is paused until `paused_until`, in seconds since
    1970 (None: it is not; infinite: until somebody ends it). `shard_key` is its name. `Queue.outlook` returns them.
    """

    shard_key: str | bytes
    waits: int
    reasons: dict[WaitReason, int]
    served_in: float | None
    weight: int = 1
    in_flight: int = 0
    max_in_flight: int = 0
    rate: float = 0.0
    paused_until: float | None = None


class Help(msgspec.Struct, frozen=True):
    """Something that one could do, and what it would change.

    `what` names it: "2 more workers", "no limit of acme", "no pause of acme". `helps` says whether it changes much. The
    backlog of `shard_key` (None: of the whole queue) would be served in about `seconds`, instead of in `instead_of`
    seconds; both are None where that cannot be said, or never happens. `text` says it in words, such as "4 min instead
    of 8 min" or "no use to the others".

    `Queue.outlook` returns them.
    """

    what: str
    helps: bool
    seconds: float | None
    instead_of: float | None
    text: str
    shard_key: str | bytes | None = None


class Outlook(msgspec.Struct, frozen=True):
    """The future of the messages that wait in a queue, from numbers of the instant `time` and of the minutes before.

    `waits` is the backlog and the delayed messages. `reasons` says for what they wait: each message counts once, so
    they add up to `waits`. `drains` says what becomes of the backlog, which is served in about `drain_seconds` (None
    unless it is "empty" or "drains"); `why` says in words why it is None. `grows` is whether as much or more is written
    than is done.

    `rate` is how many messages were done in a second, `written_rate` how many were written, both in the last minutes;
    None if nobody knows. `capacity` is how many could be done in a second if enough waited. `workers` read the queue,
    with `slots` in which jobs can run; `busy` of them are busy: 0 if none tells, as workers of earlier versions do
    not. `is_read` is whether anybody reads, such workers included.

    `tenants` are shard keys that wait, the largest first: all of a small queue, else those that were found by looking
    at some (`tenants_are_some`). `tenants_waiting` is how many wait, `others_served_in` in how many seconds what waits
    of all but the first is served. 99 of 100 of their messages waited for at most `others_pickup` in the last minute,
    without those of tenants that wait for a limit or a pause.
    `weights` is the sum of the weights of those that share the turns. A shard key that was asked for is among
    `tenants`, too, if anything of it waits, and `helps` says what would help it.

    `Queue.outlook` returns one, of the queue whose name is `queue`.
    """

    queue: str
    time: float
    waits: int
    reasons: dict[WaitReason, int]
    drains: DrainState
    drain_seconds: float | None
    why: str
    grows: bool
    rate: float | None
    written_rate: float | None
    slots: int
    busy: float
    workers: int
    is_read: bool
    tenants: tuple[TenantOutlook, ...] = ()
    tenants_are_some: bool = False
    tenants_waiting: int = 0
    others_served_in: float | None = None
    others_pickup: float | None = None
    helps: tuple[Help, ...] = ()
    capacity: float | None = None
    weights: float = 0.0
