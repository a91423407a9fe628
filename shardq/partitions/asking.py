"""Ask for the map of a queue: whether it is there at all, and which partitions it has now."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardq.errors import BackendError, QueueMissing, ShardqError
from shardq.model.partitions import map_of
from shardq.ops.queue.opening import find_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import is_denied
from shardq.ops.queue.sight import seen
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op, Refused

MAX_AGE: Final = 5.0
"""Seconds after which a client asks for the map again, while it is used. `resize` relies on it."""


def is_seen(head: QueueState, until: float) -> Op[bool]:
    """Return whether the queue is there. Its settings are known then: to see them takes no right to change any.

    A role that may not see them may look the queue up.
    """
    found = yield from outcome_of(seen(head, until))
    if isinstance(found, QueueMissing):
        return False
    if isinstance(found, BackendError) and isinstance(found.__cause__, Refused) and is_denied(found.__cause__):
        return (yield from find_queue(head, until))
    if isinstance(found, ShardqError):
        raise found
    view, *_ = found
    if not head.epoch:
        head.know(replace(view, epoch=""))
    return True


def ask_map(head: QueueState, until: float) -> Op[None]:
    """See the map of the queue as it is now. QueueMissing if the queue is gone."""
    view, *_ = yield from seen(head, until)
    if view.epoch != head.epoch:
        view = replace(view, epoch="")  # the next call that needs the rest looks it up
    elif map_of(view.config.partitions) == map_of(head.config.partitions):
        view = head.view
    head.know(view)
