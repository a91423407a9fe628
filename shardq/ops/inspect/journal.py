"""Read the journal: the events of a queue's messages."""

from __future__ import annotations

from typing import NamedTuple

from shardq.arguments import whole
from shardq.model import JournalPage
from shardq.ops.queue.opening import (
    missing,
)
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.journal import EventColumns, decode
from shardq.protocol.replies import created_ms, journal_page, position_of_page


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


class JournalColumns(NamedTuple):
    """As `JournalPage`, but its events are in columns: `columns` lacks all that is missing up to `position`."""

    columns: EventColumns
    start: int
    position: int
    latest: int
    queue_id: str


def journal_columns(state: QueueState, count: int, after: int, timeout: float | None = None) -> Op[JournalColumns]:
    """Do as `journal`, for a reader of all of it: no value is made of a page."""
    call = Call.on(state.keys, "journal", (after, count))
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if not reply:
        raise missing(state)
    queue_id, latest = reply[0].decode(), int(reply[1])
    start = min(max(after, created_ms(queue_id) * 1000), latest)
    columns = decode(reply[3], start)
    return JournalColumns(columns, start, position_of_page(reply, columns), latest, queue_id)
