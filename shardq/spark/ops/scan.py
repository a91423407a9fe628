"""Read what a queue holds without changing it: its streams page by page, and the state of each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardq.clock import Clock
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Ask, Call, Op

EntryId = tuple[int, int]
"""An entry id that compares correctly: as text, "9-1" is above "10-1"."""

BODIES = "d"
"""The place of messages in the stream `:bodies`: those that are or were delayed, held back or redriven."""

LAST_SEQUENCE: Final = 2**64 - 1
"""The highest second half of an entry id."""
SCANNED = 1000
FETCHED_BYTES = 4 * 1024 * 1024


def entry_id(raw: bytes) -> EntryId:
    """Return an entry's id in a form that compares correctly."""
    ms, _, number = raw.partition(b"-")
    return int(ms), int(number)


def page(state: QueueState, key: str, after: str, until: str, count: int) -> Op[list[Any]]:
    """Return up to *count* entries of stream *key* after id *after* ("-": the start) up to *until* ("+": the end)."""
    start = "-" if after == "-" else f"({after}"
    return (yield from ask(state, "XRANGE", key, start, until, "COUNT", count))  # type: ignore[no-any-return]


def last_id(state: QueueState, key: str) -> Op[str]:
    """Return the id of the newest entry that the stream *key* ever had; "0-0" if it never had any."""
    facts = yield from ask(state, "XINFO", "STREAM", key, key=key)
    named = dict(zip(facts[::2], facts[1::2], strict=True))
    return str(named[b"last-generated-id"].decode())


class Fetched(NamedTuple):
    """A message: where it was written, as in its id, and its fields."""

    origin: str
    fields: Sequence[bytes]


def fetch(state: QueueState, handles: Sequence[tuple[str, str]]) -> Op[list[Fetched | None]]:
    """Return the messages at these places and entry ids, which are sorted by place; None if one is gone.

    Their number is that of *handles*, or smaller if they are large; then ask for the rest.
    """
    asked = handles[:SCANNED]
    numbers = dict.fromkeys(place for place, _ in asked if place != BODIES)
    words: tuple[Argument, ...] = (FETCHED_BYTES, 1, *(f"{place}:{entry}" for place, entry in asked))
    call = Call.on(state.keys, "fetch", words, rest=state.declared([*numbers]))
    rows = yield from retry_until(always(call), state.until(), state.clock)
    return [Fetched(row[0].decode(), row[1]) if row else None for row in rows]


def cuts(state: QueueState, key: str, pieces: int) -> Op[list[str]]:
    """Return ids that cut the stream *key* into about equal pieces, in order; fewer where it has too few moments.

    The ids have numbers that grow by one with each message of the queue, so the id in the middle is found by halving.
    """
    first = yield from _first_from(state, key, 0)
    last = entry_id((yield from last_id(state, key)).encode())
    found: list[str] = []
    for nth in range(1, pieces if first else 0):
        wanted, low, high = first[1] + (last[1] - first[1]) * nth // pieces, first[0], last[0]  # type: ignore[index]
        while low < high:
            middle = (low + high) // 2
            at = yield from _first_from(state, key, middle + 1)
            low, high = (middle + 1, high) if at and at[1] <= wanted else (low, middle)
        if low < last[0] and found[-1:] != [str(low)]:
            found.append(str(low))
    return found


def _first_from(state: QueueState, key: str, ms: int) -> Op[EntryId | None]:
    """Return the id of the first entry that was written at *ms* or later."""
    rows = yield from ask(state, "XRANGE", key, str(ms), "+", "COUNT", 1)
    return entry_id(rows[0][0]) if rows else None


def skip(state: QueueState, key: str, after: str, until: str, count: int) -> Op[tuple[str, int]]:
    """Return the id of the entry that is *count* entries after id *after*, or of the last one up to *until*.

    Return also how many entries that were.
    """
    passed = 0
    while passed < count:
        call = Call.on(state.keys, "skip", (after, until, min(count - passed, SCANNED)), rest=(key,))
        last, found = yield from retry_until(always(call), state.until(), state.clock)
        after, passed = last.decode(), passed + found
        if found < SCANNED:
            break
    return after, passed


def server_ms(clock: Clock, timeout: float) -> Op[int]:
    """Return the time on the server's clock in ms. On a cluster it is that of any node."""
    seconds, micros = yield from retry_until(lambda _: Ask(("TIME",)), clock.monotonic() + timeout, clock)
    return int(seconds) * 1000 + int(micros) // 1000
