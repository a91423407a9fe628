"""Read all that a queue holds, piece by piece, while it is used (lua/sweep.lua).

A message's id and shard key never change, so a sweep that reads all messages with ids from one to another, or with
some shard keys, is the only one to read these. It reads the streams first, then the overflows, then what lies by
itself: a message only ever moves in this direction. So it meets each of them that stays in the queue, and knows by the
ids which it has met before.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from shardq.model import QueueStats
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.bodies import field_of_payload
from shardq.spark.ops.scan import EntryId, entry_id
from shardq.spark.ops.scan import cuts as cuts_of_stream

SCAN_START: Final = b"0"
"""The cursor with which a scan begins, and which it returns at its end."""

MAX_WHOLE_BLOCKS: Final = 64
"""Blocks of an overflow that are read whole, whatever of it is wanted."""

STATES_A_CALL: Final = 64
"""Messages whose state is asked for by one call."""

_SCANNED: Final = 1000
_PROBES: Final = 4
_MOVES: Final = ("epoch", "offset", "line", "cancelled", "purged", "redriven")
_BODY_BYTES: Final = 4 * 1024 * 1024
_SAMPLED: Final = 100
_TOKEN: Final = re.compile(rb"\w{1,4}:(\d{1,16}-\d{1,20}):(\d{1,10}):[^:]*:([eulL]*)")
_SIZE: Final = re.compile(rb"(\d{1,5}):")
_RETURNED: Final = re.compile(rb"\w\d{1,20}:\w{1,4}:(\d{1,16}-\d{1,20}):(\d{1,10})([a-z]*):")
_FIRST_ENTRY: Final = re.compile(rb"\d{1,16}:(\d{1,16})-(\d{1,20})")
_OVERFLOW: Final = re.compile(rb"[ :](\d{1,16})\.(\d{1,16})\.(\d{1,16})\.\d{1,16}(?: |$)")
_DELAYED: Final = re.compile(rb"(\d{14}):\w{1,4}:(\d{1,16}-\d{1,20}):(\d{1,10})([a-z]*):")


class Piece(NamedTuple):
    """The messages with ids after one and up to another; both are whole."""

    after: str = "0-0"
    upto: str = f"{2**53}-{2**64 - 1}"

    def has(self, entry: bytes) -> bool:
        """Whether a message is one of these."""
        return order(self.after) < entry_id(entry) <= order(self.upto)


@lru_cache(maxsize=64)
def order(bound: str) -> EntryId:
    """Return an end of a piece in a form that compares correctly."""
    return entry_id(bound.encode())


class KeyShare(NamedTuple):
    """A share of the shard keys of a queue: number *nth* of *of*, by a hash with *salt*.

    The shard keys that are *large* are in no share: their messages are cut by ids.
    """

    nth: int
    of: int
    salt: int = 0
    large: frozenset[bytes] = frozenset()

    def has(self, shard_key: bytes) -> bool:
        """Whether a shard key, which is not large, is in this share."""
        return share_of(shard_key, self.salt, self.of) == self.nth


def share_of(shard_key: bytes, salt: int, of: int) -> int:
    """Return in which of *of* shares a shard key is."""
    return zlib.crc32(shard_key, salt) % of


class Portion(NamedTuple):
    """The part that one sweep reads: a piece, or its messages with some shard keys, or those of a *cut*."""

    piece: Piece = Piece()
    share: KeyShare | None = None
    cut: Piece = Piece()

    def has(self, entry: bytes, shard_key: bytes) -> bool:
        """Whether a message is read."""
        if self.share is None or shard_key in self.share.large:
            return self.of(shard_key).has(entry)
        return self.share.has(shard_key) and (self.piece == Piece() or self.piece.has(entry))

    def of(self, shard_key: bytes) -> Piece:
        """Return the ids that are read of a shard key which is in the share, or large."""
        return self.cut if self.share is not None and shard_key in self.share.large else self.piece


class SweepSpot(NamedTuple):
    """The state of a message outside of what is new: in_flight, returned, delayed or held.

    `deliveries` are those so far. `at` is when its lease ends or when it comes due, in ms. `flags` are the engine's:
    'e' it has a last error, 'l' its last lease ended.
    """

    state: str
    deliveries: int = 0
    at: int | None = None
    flags: str = ""


class Index(NamedTuple):
    """The spots of the messages of a piece, by entry id, as far as they are known.

    `now` is the server's time in ms. Messages above their stream's cursor were not delivered by then. `others` are
    messages with shard keys of other shares.
    """

    now: int
    cursors: dict[str, EntryId]
    spots: dict[bytes, SweepSpot]
    others: set[bytes]


def index(state: QueueState, numbers: Sequence[str], portion: Portion) -> Op[Index]:
    """Read the spots of the messages of a portion, and the cursors of streams, while the queue is used.

    The cursors are read first, so what is delivered meanwhile is found in flight. If a message has two spots, the one
    that was read last is the newer one. A message that moves meanwhile may not be found.
    """
    keys = state.keys
    seconds, micros = yield from ask(state, "TIME", key=keys.meta)
    cursors: dict[str, EntryId] = {}
    for at in range(0, len(numbers), _SCANNED):
        part = numbers[at : at + _SCANNED]
        values = yield from ask(state, "HMGET", keys.meta, *(f"h{number}" for number in part))
        cursors |= {number: entry_id(value or b"0-0") for number, value in zip(part, values, strict=True)}
    found = Index(int(seconds) * 1000 + int(micros) // 1000, cursors, {}, set())
    cursor = b""
    while cursor != SCAN_START:
        cursor, flat = yield from ask(state, "ZSCAN", keys.leases, cursor or SCAN_START, "COUNT", _SCANNED)
        _note(found, portion, map(_leased, flat[::2], flat[1::2]))
    for key, spot_of in ((keys.returned, _returned), (keys.delayed, _delayed)):
        last = b""
        while page := (yield from ask(state, "ZRANGEBYLEX", key, b"(" + last, "+", "LIMIT", 0, _SCANNED)):
            _note(found, portion, map(spot_of, page))
            last = page[-1]
    return found


_Known: TypeAlias = tuple[bytes, SweepSpot, bytes]
"""The entry id of a message, its spot and its shard key."""


def _note(found: Index, portion: Portion, known: Iterable[_Known | None]) -> None:
    for each in known:
        if each is None:
            continue
        entry, spot, shard_key = each
        if portion.has(entry, shard_key):
            found.spots[entry] = spot
        elif portion.share is not None:
            found.others.add(entry)


def _leased(token: bytes, score: bytes) -> _Known | None:
    found = _TOKEN.match(token)
    if found is None:
        return None
    spot = SweepSpot("in_flight", int(found[2]), math.ceil(float(score)), found[3].decode())
    return found[1], spot, token.split(b":", 5)[5]


def _returned(member: bytes) -> _Known | None:
    shard_key, at = _sized_key(member)
    found = _RETURNED.match(member, at)
    return found and (found[1], SweepSpot("returned", int(found[2]), None, found[3].decode()), shard_key)


def _delayed(member: bytes) -> _Known | None:
    shard_key, at = _sized_key(member)
    found = _DELAYED.match(member, at)
    if found is None:
        return None
    spot = SweepSpot("delayed", int(found[3]), int(found[1]), found[4].decode())
    return found[2], spot, member[found.end() :] or shard_key  # with parents it is behind the rest


def _sized_key(member: bytes) -> tuple[bytes, int]:
    """Return the shard key of a member that begins with "size:key:", and where it continues behind that."""
    found = _SIZE.match(member)
    end = found.end() + int(found[1]) if found else 0
    return (member[found.end() : end], end + 1) if found else (b"", 0)


class OverflowHolder(NamedTuple):
    """The overflow of a shard key: its first and last block, and how much of the first was taken."""

    shard_key: bytes
    head: int
    offset: int
    tail: int

    def field(self, number: int) -> bytes:
        """Return the field of a block."""
        return b"m%b\n%d" % (self.shard_key, number)

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return self.tail - self.head + 1

    def numbered(self) -> list[tuple[OverflowHolder, int]]:
        """Return its blocks, each with its number."""
        return [(self, number) for number in range(self.head, self.tail + 1)]


def holders(state: QueueState, cursor: bytes, shard_keys: Sequence[bytes]) -> Op[tuple[bytes, list[OverflowHolder]]]:
    """Return where to continue after *cursor*, and some overflows; one may come twice.

    With *shard_keys* only theirs.
    """
    call = Call.on(state.keys, "holders", (cursor, _SCANNED, *shard_keys))
    following, flat = yield from retry_until(always(call), state.until(), state.clock)
    found = []
    for shard_key, text in zip(flat[::2], flat[1::2], strict=True):
        if words := _OVERFLOW.search(text):
            head, offset, tail = map(int, words.groups())
            found.append(OverflowHolder(shard_key, head, offset, tail))
    return following, found


def blocks_around(state: QueueState, holder: OverflowHolder, entry: str, near: int) -> Op[tuple[int, int]]:
    """Return the numbers of two blocks, before and behind the end of the messages up to an entry id.

    No message before the first block comes after that id, and behind the second one none comes up to it. Their ids
    grow, so they are found by looking at a few blocks between those where it may be, until they are *near*.
    """
    low, high, wanted = holder.head, holder.tail, order(entry)
    while high - low > near:
        numbers = [low + (high - low) * nth // _PROBES for nth in range(1, _PROBES)]
        texts = yield from blocks(state, [holder.field(number) for number in numbers])
        before, known = (low, high), zip(numbers, texts, strict=True)
        for number, first in [(number, first_id(text)) for number, text in known if text]:
            low, high = (number, high) if first <= wanted else (low, min(high, number))
        if before == (low, high):
            break
    return low, high


def first_id(block: bytes) -> EntryId:
    """Return the id of the first message in a block."""
    found = _FIRST_ENTRY.match(block)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def blocks(state: QueueState, fields: Sequence[bytes]) -> Op[list[bytes | None]]:
    """Return blocks of overflows, or payloads that lie by themselves; None for one that is gone."""
    return (yield from ask(state, "HMGET", state.keys.bodies, *fields))  # type: ignore[no-any-return]


def bodies(state: QueueState, entries: Sequence[bytes]) -> Op[list[tuple[bytes, bytes | None] | None]]:
    """Return the bodies of messages that lie by themselves, each with its payload if that does, too; None for one gone.

    One look has both: `replace` changes them together.
    """
    found = yield from blocks(state, [*entries, *map(field_of_payload, entries)])
    pairs = zip(found[: len(entries)], found[len(entries) :], strict=True)
    return [None if body is None else (body, payload) for body, payload in pairs]


def alone(state: QueueState, cursor: bytes) -> Op[tuple[bytes, list[bytes]]]:
    """Return where to continue after *cursor*, and the ids of some messages that lie by themselves.

    One may come twice.
    """
    call = Call.on(state.keys, "alone", (cursor, _SCANNED))
    following, found = yield from retry_until(always(call), state.until(), state.clock)
    return following, found


def moves(state: QueueState) -> Op[tuple[bytes | None, ...]]:
    """Return what changes when messages leave a stream or an overflow, or come back from the dead letters.

    The field `offset` counts each delivery, and only grows.
    """
    return tuple((yield from ask(state, "HMGET", state.keys.meta, *_MOVES)))


def outside(state: QueueState) -> Op[int]:
    """Return how many blocks of overflows, and bodies and payloads that lie by themselves, there are."""
    return int((yield from ask(state, "HLEN", state.keys.bodies)))


class SweepTold(NamedTuple):
    """A message that lies by itself or in a stream: its spot, which may be "new", its last error, and its body.

    `payload` is there if that lies by itself.
    """

    spot: SweepSpot
    last_error: str
    body: bytes
    payload: bytes | None = None


def states(state: QueueState, handles: Sequence[bytes]) -> Op[list[SweepTold | None]]:
    """Return the messages with these handles ("place:entry id") as they are now; None for one that is gone.

    They are fewer if they are large: ask for the rest. The deliveries of messages in flight are not known.
    """
    asked = handles[:STATES_A_CALL]
    numbers = dict.fromkeys(handle.partition(b":")[0].decode() for handle in asked)
    streams = state.declared([number for number in numbers if number != "d"])
    call = Call.on(state.keys, "states", (_BODY_BYTES, *asked), rest=streams)
    rows = yield from retry_until(always(call), state.until(), state.clock)
    return [_told(row) if row else None for row in rows]


def _told(row: Sequence[Any]) -> SweepTold:
    name, deliveries, due, error, *body = row
    spot = SweepSpot(name.decode(), int(deliveries), int(due) if due else None)
    return SweepTold(spot, error.decode(errors="replace"), *body)


def last_errors(state: QueueState, spots: Mapping[bytes, SweepSpot]) -> Op[dict[bytes, str]]:
    """Return the last errors of those of some messages that have any, by entry id."""
    found = {entry: "lease ended" for entry, spot in spots.items() if "l" in spot.flags.lower()}
    wanted = [entry for entry, spot in spots.items() if "e" in spot.flags and entry not in found]
    if wanted:
        texts = yield from ask(state, "HMGET", state.keys.errors, *wanted)
        words = {entry: text.split(b"|", 2) for entry, text in zip(wanted, texts, strict=True) if text}
        found |= {entry: each[2].decode(errors="replace") for entry, each in words.items()}
    return found


def cuts(state: QueueState, stats: QueueStats, pieces: int) -> Op[list[str]]:
    """Return entry ids that cut what the queue holds into about equal pieces, in order; fewer where it has few moments.

    Known are the ids of some messages outside of the streams, and about where the longest stream has its parts. It
    stands for all streams, since their messages come in turn.
    """
    call = Call.on(state.keys, "sample", (_SAMPLED,))
    sampled = yield from retry_until(always(call), state.until(), state.clock)
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
