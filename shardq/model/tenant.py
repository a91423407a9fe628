"""The numbers of one tenant in a queue."""

from __future__ import annotations

import msgspec

from shardq.model.limits import Limits


class Neighbour(msgspec.Struct, frozen=True):
    """Another tenant by its `shard_key`, and its `backlog`, as `Queue.tenant` returns them.

    `shared` is how many of its streams are also those of the tenant that was asked for.
    """

    shard_key: str | bytes
    shared: int
    backlog: int


class Tenant(msgspec.Struct, frozen=True):
    """The numbers of one shard key in a queue; where the queue has `parents`, a parent with all its children.

    `backlog` is `in_streams` (undelivered in the shared streams) + `held_back` (in its overflow); `limited` counts
    those held back for a limit or a pause, the others wait for their turn. `delayed` messages are not due yet. `ahead`
    is for how many seconds of work, divided by its weight, it has received more than those whose turn is next: 0 if it
    is not served more than others, and soon if it is idle. `oldest_age` is for how many seconds the one that waits
    longest has been deliverable; None if nothing waits. If more than 10,000 messages wait in the streams, and of one
    tenant alone, only the first messages of its streams and of its overflow are looked at, and it is None if they do
    not tell (but not in a table in the order "oldest"). All numbers are of the moment of the call, also if nobody has
    read since leases ended or messages came due; of more than 1,000 leases that ended the others count as in flight.
    `paused_until` is a time of the server in seconds since 1970, None if it is not paused. `streams` are those that it
    may use; () of a parent. `neighbours`, of one tenant and if asked for, are shard keys with large backlogs of those
    that share most streams with it: in a small queue all are looked at, else those at the heads of its streams and some
    by chance, which most likely include those with very large backlogs.

    `limits` and `weight` are in force: its own, or those of its `plan` (None if it is on none). `dedup_keys`, `dead`
    and `result_bytes` are what it uses of the bounds `max_dedup` (unique keys too), `max_dead` and `max_result_bytes`;
    of `max_len` it uses what waits, is delayed or in flight. Things that have ended leave these numbers when a later
    write or ack comes across them, a unique key a minute or more after its message is done.

    `Queue.tenants` returns them. `shard_key` is the name, and `in_flight` messages of it are worked on.
    """

    shard_key: str | bytes
    backlog: int
    in_streams: int
    held_back: int
    limited: int
    delayed: int
    in_flight: int
    ahead: float
    oldest_age: float | None
    weight: int
    limits: Limits
    plan: str | None
    dedup_keys: int
    dead: int
    result_bytes: int
    paused_until: float | None
    streams: tuple[int, ...]
    neighbours: tuple[Neighbour, ...] = ()
