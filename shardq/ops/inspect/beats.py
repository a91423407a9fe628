"""The workers of a queue, and what it did in the last minutes, as they told with their beats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from shardq.arguments import whole
from shardq.model.minute import Minute
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect.stats import require_settings
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.beats import MINUTE, minutes_of, workers_of

MAX_MINUTES: Final = 480
WORKERS_A_PAGE: Final = 100
MAX_PAGES: Final = 1000
"""Pages of workers that are read: with 10,000 workers there are 100."""
_ORDER: Final = {"working": 0, "gone": 1, "ended": 2}


def workers(state: QueueState, timeout: float | None = None) -> Op[list[WorkerStatus]]:
    """Return the last reports of the queue's workers: those that work first, the busiest at the top.

    QueueMissing if there is no such queue, but see `require_settings`.
    """
    until, cursor = state.until(timeout), "0"
    found: dict[str, WorkerStatus] = {}
    for _ in range(MAX_PAGES):
        call = Call.on(state.keys, "workers", (cursor, WORKERS_A_PAGE))
        reply = yield from retry_until(always(call), until, state.clock)
        if len(reply) == 1:
            require_settings(state)
            return []
        # A page may have one that an earlier one has.
        found |= {each.id: each for each in workers_of(state.keys.name, int(reply[0]) / 1000, reply[2])}
        cursor = reply[1].decode()
        if cursor == "0":
            break
    return in_order(found.values())


def in_order(found: Any) -> list[WorkerStatus]:
    """Return workers in the order in which they are shown."""
    return sorted(found, key=lambda each: (_ORDER[each.state], -each.busy, each.id, each.queue))


def history(state: QueueState, minutes: int, timeout: float | None = None) -> Op[list[Minute]]:
    """Return the last *minutes* of the queue, this one included, the oldest first. QueueMissing as of `workers`."""
    whole("minutes", minutes, 1, MAX_MINUTES)
    until, rows = state.until(timeout), list[tuple[bytes, bytes]]()
    wanted, latest = min(minutes + 1, MAX_MINUTES), -1  # the one before them says what the first one adds
    while len(rows) < wanted:
        count = min(WORKERS_A_PAGE, wanted - len(rows))
        call = Call.on(state.keys, "history", (len(rows), count))
        reply = yield from retry_until(always(call), until, state.clock)
        if len(reply) == 1:
            require_settings(state)
            return []
        minute = int(reply[0]) // (1000 * MINUTE)
        if minute != latest and latest >= 0:  # a minute began meanwhile: once more, from its begin
            rows.clear()
            latest = minute
            continue
        latest = minute
        rows += _pairs(reply[1])
    return minutes_of(reversed(rows), latest - minutes + 1)


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def beat_call(state: QueueState, worker: str, row: str, work: str, numbers: str, *, first: bool) -> Call:
    """Return a worker's beat: its *row*, and what there is of *work* and of *numbers* of a minute.

    With the *first* one of a minute it asks whether it is to tell the minute's numbers. Where the queue keeps a
    journal, that tells who joins and leaves.
    """
    more = (work, numbers, int(first)) if work or numbers or first else ()
    keys = state.keys
    return Call.on(keys, "beat", (worker, row, *more), rest=(keys.journal,) if state.config.journal else ())


class BeatReply(NamedTuple):
    """Redis's reply to a beat."""

    now: int
    """Milliseconds of the server's clock."""
    cancels: bytes | None
    """How many messages were cancelled, as HGET says it."""
    is_asked: bool
    """Whether the next beat is to tell the numbers of this minute."""


def beat_reply(reply: bytes) -> BeatReply | None:
    """Return what Redis says to a beat; None if there is no such queue."""
    now, _, rest = reply.partition(b"|")
    cancels, _, asked = rest.partition(b"|")
    return BeatReply(int(now), cancels or None, asked == b"1") if rest else None


def numbers_calls(state: QueueState) -> list[Call]:
    """Return the calls for the numbers of this minute, one for each partition of the queue.

    With other streams than this client knows the ages lack some.
    """
    states = (state,) if state.parts is None else state.parts.states
    return [_numbers_call(each, each.streams or state.streams) for each in states]


def _numbers_call(state: QueueState, streams: int) -> Call:
    keys, config = state.keys, state.config
    legacy = (config.legacy_stream,) if config.legacy_stream else ()
    return Call.on(keys, "stats", (len(legacy), 0), rest=(*map(keys.stream, range(streams)), *legacy))
