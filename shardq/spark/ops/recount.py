"""Compare what the tasks of a bulk write have stored with what Redis knows of it, when all of them are done.

A server that restarts from an older snapshot, or a replica that takes over, may have lost rows of tasks that had ended
by then. Nobody else would notice, because these tasks are not tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.spark.ops.bulk import BulkOffset

FIELDS_AT_ONCE = 1000


class Recount(NamedTuple):
    """The offsets whose rows in Redis are fewer than were stored.

    They are `lost` if the rows are gone as well, and `forgotten` if Redis may have lost the offsets alone.
    """

    lost: list[BulkOffset]
    forgotten: list[BulkOffset]


def recount(state: QueueState, offsets: Sequence[BulkOffset]) -> Op[Recount]:
    """Return those *offsets* whose rows in Redis are fewer than they say are `stored`. BackendTimeout, BackendError."""
    lost: list[BulkOffset] = []
    forgotten: list[BulkOffset] = []
    for at in range(0, len(offsets), FIELDS_AT_ONCE):
        some = offsets[at : at + FIELDS_AT_ONCE]
        call = Call.on(state.keys, "recount", (some[0].began, *(each.field for each in some)))
        reply = yield from retry_until(always(call), state.until(), state.clock)
        is_younger, now, known = reply
        for each, text in zip(some, known, strict=True):
            if each.stored and not _knows(text, each):
                ended = now > each.began + each.remember * 1000
                (forgotten if is_younger or ended else lost).append(each)
    return Recount(lost, forgotten)


def has_forgotten(state: QueueState, began: int) -> Op[bool]:
    """Return whether Redis may have lost what it knew of a write that *began* then, while its messages stayed."""
    call = Call.on(state.keys, "recount", (began, ""))
    is_younger, *_ = yield from retry_until(always(call), state.until(), state.clock)
    return bool(is_younger)


def _knows(text: bytes | None, offset: BulkOffset) -> bool:
    """Return whether Redis knows of all rows of *offset*, or of a later batch, which begins when they are stored."""
    if text is None:
        return False
    _, stored, batch, _ = text.split(b"|")
    return (int(batch), int(stored)) >= (offset.batch, offset.stored)
