"""Losses: partitions that Redis lost are made again, as a queue without partitions is by its next call.

A node that comes back without its data lacks the partitions that it had; a server that is flushed lacks the whole
queue. Then the map that this client knows says where they are. A partition that was drained and removed is not made
again: the newest map counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shardq.errors import QueueMissing, ShardqError
from shardq.model.shares import shared
from shardq.ops.queue.opening import create, exists, log, open_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.partitions.asking import ask_map
from shardq.partitions.furnish import furnish

if TYPE_CHECKING:
    from shardq.partitions.parts import Parts


def find_again(parts: Parts, until: float) -> Op[None]:
    """See which partitions the queue of *parts* has, and make those again that are written to, and gone.

    They get their limits, plans and pauses in the background. So it may continue within a call that callers share. If
    this process ends before, `resize` to the number that there is gives them.
    QueueMissing if the queue is gone, and this client has no settings for it.
    """
    head = parts.whole
    seen = yield from outcome_of(ask_map(head, until))
    if isinstance(seen, QueueMissing) and head.creates:
        head.forget()
        yield from open_queue(head, until)
    elif isinstance(seen, ShardqError):
        raise seen
    now: Parts = head.parts or parts
    for state in now.states[1 : now.map.written]:
        if (yield from exists(state, until)):
            continue
        yield from ask_map(head, until)  # looks may take long while nodes fail: it may have been removed meanwhile
        now = head.parts or parts
        if state.number >= now.map.written:
            continue
        log.error("partition %d of queue %r was gone and was created again", state.number, head.keys.name)
        yield from _made(head, state, now.map.read, until)
        if parts.common.asks is not None:
            parts.common.asks(_furnished(head, state, now.map.read))


def _made(head: QueueState, state: QueueState, count: int, until: float) -> Op[None]:
    settings = shared(head.config, state.number, count)
    # A queue whose window was switched off may know its shard keys still; `furnish` switches this one off, too.
    state.requested = replace(settings, window=max(1, settings.window))
    yield from create(state, until)
    state.requested = settings


def _furnished(head: QueueState, state: QueueState, count: int) -> Op[None]:
    failed = yield from outcome_of(furnish(head, state, count, None))
    if isinstance(failed, ShardqError):
        log.error(
            "partition %d of queue %r has no limits, plans and pauses: %s; `shardq resize %s --partitions %d` gives it "
            "those of the queue",
            state.number, head.keys.name, failed, head.keys.name, int(head.config.partitions),
        )  # fmt: skip
