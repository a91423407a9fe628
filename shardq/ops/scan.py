"""Read what a queue holds without changing it: its streams page by page, and the state of each message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardq.engine import NEW
from shardq.ops.retry import ask, retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op

EntryId = tuple[int, int]
"""An entry id that compares correctly: as text, "9-1" is above "10-1"."""

Attempts = tuple[int, str]
"""How often a message was delivered, and its last error."""

BODIES = "d"
"""The place of messages in the stream `:bodies`: those that are or were delayed, held back or redriven."""

_HANDLE = re.compile(rb"(\w{1,4}):(\d{1,16}-\d{1,20})")
_TOKEN = re.compile(rb"(\w{1,4}:\d{1,16}-\d{1,20}):(\d{1,10}):")
SCANNED = 1000
KNOWN = 2000
"""Of so many messages it is read at once how often they were delivered. A reply that is not longer delays nobody."""
FETCHED_BYTES = 4 * 1024 * 1024
SPAN = 2**42
"""A score in the timed indexes is bucket * SPAN + time in ms (lua/modules/schedule.lua)."""


@dataclass(slots=True)
class Index:
    """The state of the messages in some places. Handles are "place:id"; times are ms of the server's clock.

    A message waits if it is in neither `leases` nor `delayed`, and lies above its stream's cursor or among the bodies.
    Below a cursor it waits if it is in `returned`, which is None until somebody needs what `given_back` reads.
    `attempts` says of messages how often they were delivered and with what error they were given back last; it is None
    if too many are known to read them all. `touched` are the places of which leases, delays or attempts are known.
    """

    now: int = 0
    cursors: dict[str, EntryId] = field(default_factory=dict)
    leases: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    delayed: dict[bytes, int] = field(default_factory=dict)
    attempts: dict[bytes, Attempts] | None = None
    returned: set[bytes] | None = None
    touched: frozenset[bytes] = frozenset()


def entry_id(raw: bytes) -> EntryId:
    """Return an entry's id in a form that compares correctly."""
    ms, _, number = raw.partition(b"-")
    return int(ms), int(number)


def index(state: QueueState, places: Sequence[str]) -> Op[Index]:
    """Read the state of the messages in *places* (numbers of streams, or `BODIES`), in parts, while the queue is used.

    The cursors are read first and then the leases, so a message that is delivered meanwhile is found among these.
    """
    keys, wanted, found = state.keys, frozenset(place.encode() for place in places), Index()
    seconds, micros = yield from ask(state, "TIME", key=keys.meta)
    found.now = int(seconds) * 1000 + int(micros) // 1000
    numbers = [place for place in places if place.isdigit()]
    for at in range(0, len(numbers), SCANNED):
        part = numbers[at : at + SCANNED]
        values = yield from ask(state, "HMGET", keys.lens, *(f"h{number}" for number in part))
        found.cursors |= {n: entry_id(value or b"0-0") for n, value in zip(part, values, strict=True)}
    for member, score in (yield from _members(state, keys.leases)):
        if (token := _TOKEN.match(member)) and token[1].partition(b":")[0] in wanted:
            found.leases[token[1]] = (int(score % SPAN), int(token[2]))
    for member, score in (yield from _members(state, keys.delayed)):
        if _is_of(member, wanted):
            found.delayed[member] = int(score % SPAN)
    found.attempts = yield from _all_attempts(state)
    handles = found.leases.keys() | found.delayed.keys() | (found.attempts or {}).keys()
    found.touched = wanted if found.attempts is None else frozenset(handle.partition(b":")[0] for handle in handles)
    return found


def given_back(state: QueueState, places: Sequence[str]) -> Op[set[bytes]]:
    """Return the handles of messages in *places* that were given back and wait, in the redelivery queue or an overflow.

    The overflow is read first, since messages go from there to the redelivery queue. It may be long.
    """
    wanted = frozenset(place.encode() for place in places)
    found: set[bytes] = set()
    for key, handles in ((state.keys.overflow, _held), (state.keys.redelivery, _returned)):
        for member, _ in (yield from _members(state, key)):
            found.update(handles(member, wanted))
    return found


def _returned(member: bytes, wanted: Container[bytes]) -> list[bytes]:
    """Return the handle that a member of the redelivery queue is, if its place is *wanted*."""
    return [member] if _is_of(member, wanted) else []


def _held(member: bytes, wanted: Container[bytes]) -> list[bytes]:
    """Return the handles in a member of the overflow if its place is *wanted*.

    lua/modules/overflow.lua documents its format. There may be a million members, so they are taken apart from behind.
    """
    parts = member.rsplit(b":", 4)
    if len(parts) < 5 or (place := parts[3].rstrip(b"!")) not in wanted:
        return []
    return [b"%b:%b-%b" % (place, parts[4], number) for number in parts[1][1:].split(b",")]


def _is_of(member: bytes, places: Container[bytes]) -> bool:
    handle = _HANDLE.fullmatch(member)
    return handle is not None and handle[1] in places


def _members(state: QueueState, key: str) -> Op[list[tuple[bytes, float]]]:
    """Return members and scores of a sorted set. A member that is in it during the whole scan is never missing."""
    found: list[tuple[bytes, float]] = []
    cursor = b"0"
    while True:
        cursor, flat = yield from ask(state, "ZSCAN", key, cursor, "COUNT", SCANNED)
        found += zip(flat[::2], map(float, flat[1::2]), strict=True)
        if cursor == b"0":
            return found


def page(state: QueueState, key: str, after: str, until: str, count: int) -> Op[list[Any]]:
    """Return up to *count* entries of stream *key* after id *after* ("-": the start) up to *until* ("+": the end)."""
    start = "-" if after == "-" else f"({after}"
    return (yield from ask(state, "XRANGE", key, start, until, "COUNT", count))  # type: ignore[no-any-return]


def attempts(state: QueueState, handles: Sequence[bytes]) -> Op[dict[bytes, Attempts]]:
    """Return what is known of these messages, by handle; nothing of those that were never given back."""
    found: dict[bytes, Attempts] = {}
    for at in range(0, len(handles), SCANNED):
        part = handles[at : at + SCANNED]
        texts = yield from ask(state, "HMGET", state.keys.attempts, *part)
        found |= {handle: _attempts(text) for handle, text in zip(part, texts, strict=True) if text}
    return found


def _all_attempts(state: QueueState) -> Op[dict[bytes, Attempts] | None]:
    """Return what is known of all messages; None if that is too much for one reply."""
    if (yield from ask(state, "HLEN", state.keys.attempts)) > KNOWN:
        return None
    flat = yield from ask(state, "HGETALL", state.keys.attempts)
    return {handle: _attempts(text) for handle, text in zip(flat[::2], flat[1::2], strict=True) if text}


def _attempts(text: bytes) -> Attempts:
    count, _, error = text.split(b"|", 2)
    return int(count.partition(b"@")[0]), error.decode(errors="replace")


def length(state: QueueState, key: str) -> Op[int]:
    """Return how many entries the stream *key* has."""
    return int((yield from ask(state, "XLEN", key)))


def last_id(state: QueueState, key: str) -> Op[str]:
    """Return the id of the newest entry that the stream *key* ever had; "0-0" if it never had any."""
    facts = yield from ask(state, "XINFO", "STREAM", key, key=key)
    named = dict(zip(facts[::2], facts[1::2], strict=True))
    return str(named[b"last-generated-id"].decode())


def field_of(state: QueueState, key: str, name: str) -> Op[bytes | None]:
    """Return one field of the hash *key*."""
    return (yield from ask(state, "HGET", key, name))  # type: ignore[no-any-return]


class Fetched(NamedTuple):
    """A message: where it was written, as in its id, and its fields."""

    origin: str
    fields: Sequence[bytes]


def fetch(
    state: QueueState, handles: Sequence[tuple[str, str]], *, bare: bool = False, until: float | None = None
) -> Op[list[Fetched | None]]:
    """Return the messages at these places and entry ids, which are sorted by place; None if one is gone.

    Their number is that of *handles*, or smaller if they are large; then ask for the rest. *bare* ones have the size of
    the payload in its place. *until* is as in `ask`.
    """
    asked = handles[:SCANNED]
    until = state.until() if until is None else until
    if NEW:
        numbers = dict.fromkeys(place for place, _ in asked if place != BODIES)
        words: tuple[Argument, ...] = (FETCHED_BYTES, int(not bare), *(f"{place}:{entry}" for place, entry in asked))
        call = Call.on(state.keys, "fetch", words, rest=state.declared([*numbers]))
        rows = yield from retry_until(lambda _: call, until, state.clock)
        return [Fetched(row[0].decode(), row[1]) if row else None for row in rows]
    counts = Counter(place for place, _ in asked)
    args: tuple[Argument, ...] = (",".join(map(str, counts.values())), FETCHED_BYTES, int(bare))
    call = Call.on(state.keys, "fetch", (*args, *(entry for _, entry in asked)), rest=_streams(state, [*counts]))
    flats = yield from retry_until(lambda _: call, until, state.clock)
    found = zip(asked, flats, strict=False)
    return [None if flat is None else Fetched(place, flat) for (place, _), flat in found]


def _streams(state: QueueState, places: list[str]) -> tuple[str, ...]:
    return tuple(state.keys.bodies if place == BODIES else state.declared([place])[0] for place in places)


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
        last, found = yield from retry_until(lambda _, call=call: call, state.until(), state.clock)  # type: ignore[misc]
        after, passed = last.decode(), passed + found
        if found < SCANNED:
            break
    return after, passed
