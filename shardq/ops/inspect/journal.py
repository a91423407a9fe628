"""Read the journal: what happened to the messages of a queue."""

from __future__ import annotations

from shardq.arguments import whole
from shardq.model import JournalPage
from shardq.ops.queue.opening import (
    missing,
)
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.replies import journal_page


def journal(state: QueueState, count: int, after: int = 0, timeout: float | None = None) -> Op[JournalPage]:
    """Return up to *count* events after position *after*. It only reads. QueueMissing if there is no such queue."""
    whole("count", count, 1, MAX_PAGE)
    whole("after", after, 0, 2**53, "the position of another page, or 0")
    call = Call.on(state.keys, "journal", (after, count))
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if not reply:
        raise missing(state)
    return journal_page(reply, after, count)


MAX_PAGE = 10_000
