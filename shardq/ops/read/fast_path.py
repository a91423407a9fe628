"""The fast path of a read, without a generator: one try that finds all that is wanted, after at most one ack.

It makes the same calls as `ops/read/read.py`, with a holder of its own. If anything but the common case comes of it,
the operation goes on from its outcome.
"""

from __future__ import annotations

from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch
from shardq.ops.queue.upkeep import needs_upkeep
from shardq.ops.read.acks import Acks
from shardq.ops.read.command import ALL_DECLARED, read_call, request_of
from shardq.ops.read.look import Look
from shardq.ops.read.sharing import FEW, reads_of
from shardq.ops.read.waiting import MAX_PER_CALL, Outstanding
from shardq.ops.settle.command import ack_call


def fast_read(
    state: QueueState,
    count: int,
    block: float,
    visibility: float | None,
    prefer: int | None,
    timeout: float | None,
    outstanding: Outstanding,
    acks: Acks | None,
) -> Look | None:
    """Return the first try of a read, on which the only one of *acks* is piggybacked.

    None if the operation must do other things first: open the queue, do upkeep, make several acks, or share a call.
    """
    if not state.view.epoch or needs_upkeep(state) or count > MAX_PER_CALL:
        return None
    if acks is not None and (acks.earlier or len(acks.last) != 1):
        return None
    coalescer = reads_of(state) if acks is None and count <= FEW else None
    if coalescer is not None and coalescer.calls:
        return None
    look = Look()
    look.state, look.acks, look.coalescer, look.made = state, acks, coalescer, False
    look.request = request = request_of(state, count, visibility, prefer)
    look.attempt = attempt = read_call(state, request, min(block, state.wait_slice), outstanding, declare=ALL_DECLARED)
    look.until = attempt.sent + block
    look.call_until = until = max(look.until, attempt.sent + state.timeout if timeout is None else state.until(timeout))
    attempt.call.until = until
    look.step = attempt.call if acks is None else Batch((ack_call(state, acks.last), attempt.call), until, once=True)
    return look
