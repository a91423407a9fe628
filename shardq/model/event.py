"""Events of a queue's journal, about its messages (docs/events.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a message, or in a queue. Times are seconds of the server's clock.

    `stream` is where the message was stored when it was written, None if it was delayed or held back. `shard_key` is
    None if the script did not know it. `count` is the number of deliveries so far. `due` is when the message can be
    delivered (for a delivery: when it could be), None for at once. `client` names the client that made the call, '' for
    a write; `task` is for a write the name of the task that the message calls, '' for all else. `by` is who asked
    for the call, by default the client (of a write nobody), and `note` what was noted with it: see `Queue.pause`.

    `charged_ms` is for how many ms the event has charged the shard key: the cost of a delivery that ended, or the
    cost so far of one that has not (kind "charged"). `ran_ms` is for how many ms the handler ran in all, by its own
    clock. Both are None where nothing was charged by then, or nobody told it.

    Events of the kinds "weighted", "limited", "paused" and "resumed" are of a shard key (None: of the whole queue),
    those of the kinds "configured", "plan_set", "plan_deleted", "stopped" (an action), "joined" and "left" (a worker)
    of the queue, and none of them of a message: their `message_id` is ''. The `due` of a pause or a limit is its end.
    Their `values` are what was set, by name, as text (docs/events.md).

    `version` is that of the event as Redis has it: 1 has neither times nor values.

    `Queue.journal` returns them: `number` is the event's place in the journal, `time` when it happened, `kind` what
    did.
    """

    number: int
    time: float
    kind: str
    message_id: str
    shard_key: str | bytes | None
    stream: int | None
    count: int
    due: float | None
    client: str
    task: str = ""
    by: str = ""
    note: str = ""
    charged_ms: float | None = None
    ran_ms: float | None = None
    values: Mapping[str, str] = {}
    version: int = 2


BITS: Final = 53
"""Bits of a position that are of one partition: more no number of an event has."""


def packed(positions: Iterable[int]) -> int:
    """Return the one position that says how far each partition of a queue was read, the head first.

    So one of a queue without partitions says the same of the head.

    >>> unpacked(packed([5, 0, 7]), 3), packed([5])
    ([5, 0, 7], 5)
    """
    return sum(each << BITS * number for number, each in enumerate(positions))


def unpacked(position: int, count: int) -> list[int]:
    """Return what a position says of *count* partitions."""
    return [position >> BITS * number & (1 << BITS) - 1 for number in range(count)]


def before(position: int, events: int) -> int:
    """Return a position that many *events* before this one, or about as many where there are several partitions.

    >>> before(100, 20), unpacked(before(packed([100, 7]), 20), 2)
    (80, [90, 0])
    """
    count = max(1, -(-position.bit_length() // BITS))
    return packed([max(0, each - -(-events // count)) for each in unpacked(position, count)])


class JournalPage(msgspec.Struct, frozen=True):
    """Some events in order. Continue after `position`; `latest` is the position of the newest event.

    `lost` is how many events up to `position` are missing, because the journal keeps only the newest ones. `queue_id`
    is the id of the queue (`stats().id`): where that of the page before is another one, the queue was deleted and
    created again in between, and this page begins with the first event that the new one still has.

    A position in a queue with partitions says how far each was read, and `number` counts the events of one partition.
    `lost_in` says by the numbers of partitions how many of the lost events were theirs. The events of a partition
    that was removed and created again count as one.

    `Queue.journal` returns one, with its `events`, the oldest first.
    """

    events: list[Event]
    position: int
    latest: int
    lost: int
    queue_id: str
    lost_in: Mapping[int, int] = {}
