"""Ask for the map of a queue: whether it is there at all, and which partitions it has now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardq.errors import BackendError, QueueMissing, ShardqError
from shardq.ops.queue.opening import find_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import is_denied
from shardq.ops.queue.sight import seen
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op, Refused

if TYPE_CHECKING:
    from shardq.partitions.parts import Parts


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
    view, _ = found
    if not head.epoch:
        head.know(replace(view, epoch=""))
    return True


def ask_map(head: QueueState, until: float) -> Op[None]:
    """See the map of the queue as it is now. QueueMissing if the queue is gone."""
    view, _ = yield from seen(head, until)
    # With the epoch that is known, what is known of the rest of the queue still holds.
    head.know(head.view if view.epoch == head.epoch else replace(view, epoch=""))


def has_moved(parts: Parts, until: float) -> Op[bool]:
    """Return whether the queue has other partitions than *parts*. They are known then. QueueMissing as `ask_map`."""
    head = parts.states[0].whole or parts.states[0]
    yield from ask_map(head, until)
    return head.parts is not parts
