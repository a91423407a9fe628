"""Look at messages that lie in no stream's order: those that wait outside of the streams, are delayed, or in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from shardq.model import PeekedMessage
from shardq.ops.inspect.page import CALLS, MESSAGES_A_CALL, Point, WantedMessages
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.sight import Sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.protocol.bodies import message_id
from shardq.protocol.standing import StandingSpot, cancelled_message, known_of, lease_of, peeked_message
from shardq.sharding import key_bytes

MAX_SHARD_KEYS: Final = 64
"""Shard keys that are looked at by one call."""

MAX_BYTES_A_CALL: Final = 1024 * 1024
"""Bytes of messages after which a call looks at no more."""

NEVER_SCORE: Final = 9e15
"""The score of a sentinel of a sorted set."""

FIRST_IDLE_SCORE: Final = 1001 * 2**43
"""From this score on, `turns` has those who have no turn, but keep what they have received (`lua/turns.lua`)."""

_TURNS, _SCAN = 0, 1


class FoundInList(NamedTuple):
    """Where a message was found, and the point behind it; its fields and where it was written, if they are known."""

    spot: StandingSpot
    point: Point
    known: bytes
    origin: str = ""
    fields: Sequence[bytes] = ()


Page: TypeAlias = tuple[list[FoundInList], Point | None]
"""Some messages in order, and the point from which to continue; None if that is all."""

Lister: TypeAlias = Callable[[QueueState, Sight, WantedMessages, Point, int], Op[Page]]
"""Returns the page after a point, with a bounded number of messages."""


def listed(
    state: QueueState, seen: Sight, wanted: WantedMessages, point: Point, lister: Lister
) -> Op[tuple[list[PeekedMessage], Point | None]]:
    """Return the messages that *lister* lists, page by page, and the point behind them; None if that is all."""
    found: list[PeekedMessage] = []
    going: Point | None = point
    for _ in range(CALLS):
        if going is None:
            break
        # The wanted shard key or stream may be a small part of a page, so a page is as large as may be.
        most = min(MESSAGES_A_CALL, wanted.count - len(found)) if wanted.is_any else MESSAGES_A_CALL
        page, going = yield from lister(state, seen, wanted, going, most)
        for each, message in zip(page, (yield from _messages(state, wanted, page)), strict=True):
            if message is not None and _is_wanted(message, wanted):
                found.append(message)
                if len(found) == wanted.count:
                    return found, each.point
    return found, going


def _is_wanted(message: PeekedMessage, wanted: WantedMessages) -> bool:
    if wanted.shard_key and (not message.shard_key or key_bytes(message.shard_key) != wanted.shard_key):
        return False
    return wanted.stream is None or message.stream == wanted.stream


def _messages(state: QueueState, wanted: WantedMessages, page: Sequence[FoundInList]) -> Op[list[PeekedMessage | None]]:
    """Return the messages of a page; None for what is gone meanwhile."""
    missing = [each for each in page if not each.fields]
    rows: list[Any] = []
    while len(rows) < len(missing):
        # A call may return fewer than it was asked for, if they are large.
        rows += yield from _fetch(state, wanted, [each.spot for each in missing[len(rows) :]])
    bodies = dict(zip([each.spot.handle for each in missing], rows, strict=True))
    leased = [each.spot.handle for each in page if each.spot.lease]
    marks = (yield from ask(state, "SMISMEMBER", state.keys.cancelled, *leased, until=wanted.until)) if leased else []
    cancelled = {handle for handle, mark in zip(leased, marks, strict=True) if mark}
    return [_seen(each, bodies.get(each.spot.handle), wanted, each.spot.handle in cancelled) for each in page]


def _seen(each: FoundInList, row: Any, wanted: WantedMessages, is_cancelled: bool) -> PeekedMessage | None:
    """Return what was found. None if it is over: acked since it was listed, or cancelled and its lease has ended."""
    if is_cancelled and each.spot.state != "in_flight":
        return None
    origin, fields = (each.origin, each.fields) if each.fields else _read(row)
    if fields:
        message = _message(each, origin, fields, has_payload=wanted.payloads)
        return replace(message, cancelled=True) if is_cancelled else message
    return cancelled_message(each.spot) if is_cancelled else None


def _read(row: Any) -> tuple[str, Sequence[bytes]]:
    return (row[0].decode(), row[1]) if row else ("", ())


def _fetch(state: QueueState, wanted: WantedMessages, spots: Sequence[StandingSpot]) -> Op[list[Any]]:
    places = list(dict.fromkeys(each.place for each in spots if each.place != "d"))
    args: tuple[Argument, ...] = (MAX_BYTES_A_CALL, int(wanted.payloads), *(each.handle for each in spots))
    call = Call.on(state.keys, "fetch", args, rest=state.declared(places))
    return (yield from retry_until(always(call), wanted.until, state.clock))  # type: ignore[no-any-return]


def _message(each: FoundInList, origin: str, fields: Sequence[bytes], *, has_payload: bool) -> PeekedMessage:
    message = peeked_message(each.spot, fields, known_of(each.known), has_payload=has_payload)
    stream = int(origin) if origin.isdigit() else None
    return replace(message, message_id=message_id(each.spot.entry, origin, message.shard_key), stream=stream)


def held(state: QueueState, seen: Sight, wanted: WantedMessages, point: Point, most: int) -> Op[Page]:
    """List the messages that wait outside of the streams: those of shard keys whose turn is next, then of limited ones.

    For one shard key they are the messages given back, then the new ones, in the order of the writes.
    """
    parents = bool(seen.view.config.parents)
    if wanted.shard_key:
        owner = (wanted.shard_key.split(b"/")[0] or wanted.shard_key) if parents else wanted.shard_key
        names, following = [owner], None
        only: bytes = wanted.shard_key if parents else b""
    else:
        names, following = yield from (_in_turns if point.bucket == _TURNS else _scanned)(state, wanted, point)
        only = b""
    if not names:
        return [], following
    # A position says something of the shard key at which the page ended, and nothing of another.
    begun = point if point.member == names[0] else Point(point.kind)
    args: tuple[Argument, ...] = (
        most,
        MAX_BYTES_A_CALL,
        int(wanted.payloads),
        only,
        begun.child,
        begun.position,
        *names,
    )
    call = Call.on(state.keys, "held", args)
    done, rows = yield from retry_until(always(call), wanted.until, state.clock)
    found = []
    for name, key, position, place, entry, known, origin, standing, fields in rows:
        behind = replace_point(point, member=name, child=key, position=position)
        spot = StandingSpot(place.decode(), entry.decode(), standing.decode())
        # A page of those that are held back leaves out messages that may be delivered now, but continues behind them.
        if wanted.state != "held_back" or spot.state == "held_back":
            found.append(FoundInList(spot, behind, known, origin.decode(), fields))
    if done < len(names):
        # The call was full in the middle of a shard key: the next one continues behind its last row.
        last = rows[-1]
        return found, replace_point(point, member=last[0], child=last[1], position=last[2])
    return found, following


def replace_point(point: Point, **changes: Any) -> Point:
    """Return the point with some of its fields changed."""
    fields = {name: getattr(point, name) for name in point.__struct_fields__}
    return Point(**{**fields, **changes})


def _in_turns(state: QueueState, wanted: WantedMessages, point: Point) -> Op[tuple[list[bytes], Point | None]]:
    """Return shard keys by their turns, beginning with the one that the point is at, and the point behind them."""
    key, start = state.keys.turns, 0
    if point.member or point.position:
        start = yield from ask(state, "ZRANK", key, point.member, until=wanted.until)
        if start is None:  # it has left: continue where it was
            start = yield from ask(state, "ZCOUNT", key, "-inf", f"({point.number}", until=wanted.until)
    flat = yield from ask(state, "ZRANGE", key, start, start + MAX_SHARD_KEYS - 1, "WITHSCORES", until=wanted.until)
    names, last = (
        [name for name, score in zip(flat[::2], flat[1::2], strict=True) if float(score) < FIRST_IDLE_SCORE],
        flat[-2:],
    )
    # No more that have a turn: then come those of all accounts that have none.
    if len(names) < MAX_SHARD_KEYS or names[-1:] == [point.member]:
        return names, Point(point.kind, bucket=_SCAN)
    return names, Point(point.kind, member=last[0], number=int(float(last[1])), position=b"o9007199254740992.0")


def _scanned(state: QueueState, wanted: WantedMessages, point: Point) -> Op[tuple[list[bytes], Point | None]]:
    """Return shard keys that have something but no turn now: a page of all accounts, and the point behind it."""
    call = Call.on(state.keys, "accounts", (point.number, MAX_SHARD_KEYS))
    reply = yield from retry_until(always(call), wanted.until, state.clock)
    if not reply:
        return [], None
    cursor, rows = reply
    others = (name for name, has_turn in zip(rows[::3], rows[2::3], strict=True) if not has_turn)
    # Sorted, so that a page which ends within a piece of HSCAN can continue in it: the cursor shows the same names
    # again.
    names = [name for name in sorted(others) if name >= point.member]
    following = None if cursor == b"0" else Point(point.kind, bucket=_SCAN, number=int(cursor))
    return names, following


def delayed(state: QueueState, seen: Sight, wanted: WantedMessages, point: Point, most: int) -> Op[Page]:
    """List delayed messages, in the order in which they come due.

    `due` says of each shard key when time brings something next, so none that stands later there has anything sooner.
    """
    after: tuple[Argument, Argument] = (point.number, point.member) if point.is_begun else ("", "")
    rows: list[tuple[int, bytes, Any]] = []
    owner = (wanted.shard_key.split(b"/")[0] or wanted.shard_key) if seen.view.config.parents else wanted.shard_key
    start, now, is_all = 0, 0, False
    while not is_all:
        names, soonest = [owner], 0
        is_all = bool(owner)
        if not owner:
            until, key = wanted.until, state.keys.due
            flat = yield from ask(state, "ZRANGE", key, start, start + MAX_SHARD_KEYS - 1, "WITHSCORES", until=until)
            scored = zip(flat[::2], flat[1::2], strict=True)
            names, is_all = (
                [name for name, score in scored if float(score) < NEVER_SCORE],
                len(flat) < 2 * MAX_SHARD_KEYS,
            )
            soonest = int(float(flat[1])) if flat else 0
        if not names or (len(rows) > most and soonest > rows[most][0]):
            break
        call = Call.on(state.keys, "due", (most, *after, *names))
        now, page = yield from retry_until(always(call), wanted.until, state.clock)
        rows = sorted(rows + [(int(row[0]), row[1], row) for row in page])[: most + 1]
        start += MAX_SHARD_KEYS
    found = []
    for time, member, row in rows[:most]:
        spot = StandingSpot(row[2].decode(), row[3].decode(), "delayed" if time > now else "waiting", until_ms=time)
        found.append(FoundInList(spot, Point(point.kind, member=member, number=time), row[4]))
    return found, found[-1].point if len(rows) > most else None


def in_flight(state: QueueState, seen: Sight, wanted: WantedMessages, point: Point, most: int) -> Op[Page]:
    """List messages in flight, in the order in which their leases end."""
    call = Call.on(state.keys, "leased", (point.member, point.number, most))
    now, rows = yield from retry_until(always(call), wanted.until, state.clock)
    found = []
    for token, time, ends, known in rows:
        # With the time: if the lease is gone by then, the next page continues from that.
        behind = Point(point.kind, member=token, number=int(time))
        if lease := lease_of(token):
            state_now = "in_flight" if int(ends) > now else "waiting"
            spot = StandingSpot(lease.place, lease.entry, state_now, until_ms=int(ends), lease=lease)  # type: ignore[arg-type]
            found.append(FoundInList(spot, behind, known))
    return found, behind if len(rows) == most else None
