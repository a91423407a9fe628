"""The common case of a read, without a generator: one look that finds all that is wanted, after at most one ack.

A look is a try of `ops/read.py`, `read`: the same calls, with a holder of its own. If anything but the common case
comes of it, the operation goes on from its outcome.
"""

from __future__ import annotations

from typing import Any

from shardq.model import Received
from shardq.ops.acks import Acks
from shardq.ops.opening import needs_upkeep
from shardq.ops.read_call import ALL_DECLARED, ReadCall, plain_rows, read_call, request_of
from shardq.ops.settle import ack_call, unsure_of
from shardq.ops.state import QueueState
from shardq.ops.steps import Batch, Call
from shardq.ops.waiting import MAX_PER_CALL, Outstanding, Request


class Look:
    """The first try of a read. `step` makes it, and `outcome` is what came of that: a reply, or a failure.

    At local time `until` its caller stops waiting for messages, and at `call_until` it gives up the try.
    """

    __slots__ = ("acks", "attempt", "call_until", "outcome", "request", "state", "step", "until")

    state: QueueState
    request: Request
    attempt: ReadCall
    step: Call | Batch
    acks: Acks | None
    until: float
    call_until: float
    outcome: Any

    def rows(self, outcome: Any) -> list[Received] | None:
        """Return the messages if *outcome* is of the common case; None if the operation must look at it."""
        self.outcome = reply = outcome
        if self.acks is not None:
            acked, reply = outcome
            if isinstance(acked, Exception) or acked[1] != b"o":
                return None
        if isinstance(reply, Exception):
            return None
        rows = plain_rows(self.state, self.attempt, reply)
        if rows is not None and self.state.unsure:
            self._is_sure()
        return rows

    def reply(self) -> Any:
        """Return the reply, or raise the failure, of a look without an ack."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def drop(self) -> None:
        """Note that the call may have happened: its caller was interrupted."""
        if self.acks is not None:
            unsure_of(self.state, [delivery for _, _, delivery in self.acks.last])

    def _is_sure(self) -> None:
        if self.acks is not None:
            self.state.unsure.difference_update([delivery.token for _, _, delivery in self.acks.last])


def first_look(
    state: QueueState,
    count: int,
    block: float,
    visibility: float | None,
    prefer: int | None,
    timeout: float | None,
    outstanding: Outstanding,
    acks: Acks | None,
) -> Look | None:
    """Return the first look of a read, which takes the only one of *acks* along.

    None if the operation must do other things first: open the queue, do upkeep, or make several acks.
    """
    if not state.view.epoch or needs_upkeep(state) or count > MAX_PER_CALL:
        return None
    if acks is not None and (acks.earlier or len(acks.last) != 1):
        return None
    look = Look()
    look.state, look.acks = state, acks
    look.request = request = request_of(state, count, visibility, prefer)
    look.attempt = attempt = read_call(state, request, min(block, state.wait_slice), outstanding, declare=ALL_DECLARED)
    look.until = attempt.sent + block
    look.call_until = until = max(look.until, attempt.sent + state.timeout if timeout is None else state.until(timeout))
    attempt.call.until = until
    look.step = attempt.call if acks is None else Batch((ack_call(state, acks.last), attempt.call), until, once=True)
    return look
