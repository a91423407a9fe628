"""The numbers of a queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at one instant, from one atomic script. Ages are seconds by the server's clock.

    `oldest_age`: for how long the message has been deliverable that waits longest, since it was written, came due, was
    given back or lost its holder. Where messages wait in very many places (shard keys, streams with redeliveries) only
    some are looked at. `streams` has the undelivered messages of each; those of more than 1,000 streams are asked for a
    moment later.
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
    vanished: int = 0
    legacy: int = 0
    held_back: int = 0
