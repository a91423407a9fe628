"""Read all that a queue holds, piece by piece, while it is used (lua/engine/sweep.lua).

A message's id never changes, so who reads all messages with ids from one to another is the only one to read these. It
reads the streams first, then the overflows, then what lies by itself: a message only ever moves in this direction. So
it meets each of them that stays in the queue, and knows by the ids which it has met before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from shardq.model import QueueStats
from shardq.ops.retry import ask, retry_until
from shardq.ops.scan import EntryId, entry_id
from shardq.ops.scan import cuts as cuts_of_stream
from shardq.ops.state import QueueState
from shardq.ops.steps import Call, Op

BEGIN: Final = b"0"
"""The cursor with which a scan begins, and which it returns at its end."""

NAMES: Final = 500
"""Of so many shard keys the overflows are read by one call at most."""

TOLD: Final = 250
"""Of so many messages the state is asked for by one call at most, which takes the server some 2 ms."""

_SCANNED: Final = 1000
_BLOCK_BYTES: Final = 512 * 1024
_BODY_BYTES: Final = 4 * 1024 * 1024
_SAMPLED: Final = 500
_TOKEN: Final = re.compile(rb"(\w{1,4}:\d{1,16}-\d{1,20}):(\d{1,10}):[^:]*:([eul]*)")

_ENDED: Final = "lease ended"
"""The last error of a message whose last lease ended: lua/engine/dead_letters.lua."""


class Piece(NamedTuple):
    """The messages with ids after one and up to another; both are whole."""

    after: str = "0-0"
    upto: str = f"{2**53}-{2**64 - 1}"


class Lease(NamedTuple):
    """When a lease ends, in ms, how many deliveries of the message there were with this one, and how the last ended.

    `error` is empty where the message's own last error says that.
    """

    ends: int
    deliveries: int
    error: str


class Leases(NamedTuple):
    """What is in flight, by handle ("place:entry id").

    `now` is the server's time in ms. What lies above its stream's cursor was not delivered by then.
    """

    now: int
    cursors: dict[str, EntryId]
    by_handle: dict[bytes, Lease]


def leases(state: QueueState, numbers: Sequence[str]) -> Op[Leases]:
    """Read what is in flight, and the cursors of streams.

    The cursors are read first, so what is delivered meanwhile is found among the leases.
    """
    keys = state.keys
    seconds, micros = yield from ask(state, "TIME", key=keys.meta)
    cursors: dict[str, EntryId] = {}
    for at in range(0, len(numbers), _SCANNED):
        part = numbers[at : at + _SCANNED]
        values = yield from ask(state, "HMGET", keys.meta, *(f"h{number}" for number in part))
        cursors |= {number: entry_id(value or b"0-0") for number, value in zip(part, values, strict=True)}
    found: dict[bytes, Lease] = {}
    cursor = b""
    while cursor != BEGIN:
        cursor, flat = yield from ask(state, "ZSCAN", keys.leases, cursor or BEGIN, "COUNT", _SCANNED)
        for token, ends in zip(flat[::2], flat[1::2], strict=True):
            if known := _TOKEN.match(token):
                found[known[1]] = Lease(int(float(ends)), int(known[2]), _ENDED if b"l" in known[3] else "")
    return Leases(int(seconds) * 1000 + int(micros) // 1000, cursors, found)


def holders(state: QueueState, cursor: bytes) -> Op[tuple[bytes, list[bytes]]]:
    """Return where to go on after *cursor*, and some shard keys that have an overflow. One may come twice."""
    call = Call.on(state.keys, "holders", (cursor, _SCANNED))
    following, found = yield from retry_until(lambda _: call, state.until(), state.clock)
    return following, found


def blocks(
    state: QueueState, shard_keys: Sequence[bytes], begun: str, piece: Piece
) -> Op[tuple[int, list[tuple[bytes, bytes]]]]:
    """Return how many of the overflows of *shard_keys* were read whole, and of each that has some its blocks, joined.

    The first one goes on after the entry id *begun*. There may be messages in the blocks that are not of the *piece*.
    """
    call = Call.on(state.keys, "blocks", (_BLOCK_BYTES, begun, *piece, *shard_keys))
    done, flat = yield from retry_until(lambda _: call, state.until(), state.clock)
    return done, list(zip(flat[::2], flat[1::2], strict=True))


def alone(state: QueueState, cursor: bytes, piece: Piece) -> Op[tuple[bytes, list[bytes]]]:
    """Return where to go on after *cursor*, and the ids of some messages of a piece that lie by themselves.

    One may come twice.
    """
    call = Call.on(state.keys, "alone", (cursor, _SCANNED, *piece))
    following, found = yield from retry_until(lambda _: call, state.until(), state.clock)
    return following, found


class Told(NamedTuple):
    """A message and its state: new, held, returned, delayed or in_flight.

    `deliveries` are those before the one that is in flight, `due_ms` when it comes due if it is delayed.
    """

    state: str
    deliveries: int
    due_ms: int | None
    last_error: str
    body: bytes


def states(state: QueueState, handles: Sequence[bytes]) -> Op[list[Told | None]]:
    """Return the messages with these handles; None for one that is gone. Fewer if they are large: ask for the rest."""
    asked = handles[:TOLD]
    numbers = dict.fromkeys(handle.partition(b":")[0].decode() for handle in asked)
    streams = state.declared([number for number in numbers if number != "d"])
    call = Call.on(state.keys, "states", (_BODY_BYTES, *asked), rest=streams)
    rows = yield from retry_until(lambda _: call, state.until(), state.clock)
    return [
        Told(row[0].decode(), int(row[1]), int(row[2]) if row[2] else None, row[3].decode(errors="replace"), row[4])
        if row
        else None
        for row in rows
    ]


def cuts(state: QueueState, stats: QueueStats, pieces: int) -> Op[list[str]]:
    """Return entry ids that cut what the queue holds into about equal pieces, in order; fewer where it has few moments.

    Known are the ids of some messages outside of the streams, and about where the longest stream has its parts. It
    stands for all streams, since their messages come in turn.
    """
    call = Call.on(state.keys, "sample", (_SAMPLED,))
    sampled = yield from retry_until(lambda _: call, state.until(), state.clock)
    outside, inside = stats.held_back + stats.delayed, sum(stats.streams)
    points = [(entry_id(each), outside / len(sampled)) for each in sampled]
    if inside:
        longest = stats.streams.index(max(stats.streams))
        ends = yield from cuts_of_stream(state, state.keys.stream(longest), pieces)
        points += [((int(end), 2**64 - 1), inside / (len(ends) + 1)) for end in ends]
    found: list[EntryId] = []
    passed, share = 0.0, (outside + inside) / pieces
    for point, weight in sorted(points):
        passed += weight
        if passed >= share * (len(found) + 1) and len(found) < pieces - 1 and point not in found[-1:]:
            found.append(point)
    return [f"{ms}-{number}" for ms, number in found]
