"""Look at messages that an index lists: those held back, delayed or in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from shardq.model import PeekedMessage
from shardq.ops import scan
from shardq.ops.peeking import CALLS, LOOKED, Point, Wanted
from shardq.ops.retry import ask, retry_until
from shardq.ops.sight import Sight
from shardq.ops.state import QueueState
from shardq.ops.steps import Call, Op
from shardq.protocol.standing import Spot, cancelled_message, held_in, known_of, lease_of, peeked_message, run_of
from shardq.sharding import key_bytes

BUCKETS = 2046
"""Buckets of an index by time, with that of what does not count in the admission window (lua/modules/schedule.lua)."""

BUCKETS_LOOKED = 128
MEMBERS = 16


class Found(NamedTuple):
    """Where a message was found, and the point behind it."""

    spot: Spot
    point: Point


Page: TypeAlias = tuple[list[Found], Point | None]
"""Some messages in order, and the point from which to go on; None if that is all."""

Lister: TypeAlias = Callable[[QueueState, Sight, Wanted, Point, int], Op[Page]]
"""Returns the page after a point, with so many messages at most."""


def listed(
    state: QueueState, seen: Sight, wanted: Wanted, point: Point, lister: Lister
) -> Op[tuple[list[PeekedMessage], Point | None]]:
    """Return the messages that an index lists, page by page, and the point behind them; None if that is all."""
    found: list[PeekedMessage] = []
    going: Point | None = point
    for _ in range(CALLS):
        if going is None:
            break
        most = min(LOOKED, wanted.count - len(found)) if wanted.is_any else LOOKED
        page, going = yield from lister(state, seen, wanted, going, most)
        messages = yield from _messages(state, wanted, [each.spot for each in page])
        for each, message in zip(page, messages, strict=True):
            if message is not None and _is_wanted(message, each.spot, wanted):
                found.append(message)
                if len(found) == wanted.count:
                    return found, each.point
    return found, going


def _is_wanted(message: PeekedMessage, spot: Spot, wanted: Wanted) -> bool:
    if wanted.shard_key and (not message.shard_key or key_bytes(message.shard_key) != wanted.shard_key):
        return False
    return wanted.stream is None or spot.place == str(wanted.stream)


def _messages(state: QueueState, wanted: Wanted, spots: Sequence[Spot]) -> Op[list[PeekedMessage | None]]:
    """Return the messages at these spots; None for what is gone meanwhile."""
    order = sorted(range(len(spots)), key=lambda at: spots[at].place)
    flats: list[Any] = []
    while len(flats) < len(spots):
        rest = [(spots[at].place, spots[at].entry) for at in order[len(flats) :]]
        found_now = yield from scan.fetch(state, rest, bare=not wanted.payloads, until=wanted.until)
        flats += [each and each.fields for each in found_now]
    handles = [each.handle for each in spots]
    texts = (yield from ask(state, "HMGET", state.keys.attempts, *handles, until=wanted.until)) if handles else []
    gone = [handles[at] for at, flat in zip(order, flats, strict=True) if flat is None and spots[at].lease]
    marks = (yield from ask(state, "SMISMEMBER", state.keys.cancelled, *gone, until=wanted.until)) if gone else []
    cancelled = {handle for handle, mark in zip(gone, marks, strict=True) if mark}
    found: list[PeekedMessage | None] = [None] * len(spots)
    for at, flat in zip(order, flats, strict=True):
        if flat is not None:
            found[at] = peeked_message(spots[at], flat, known_of(texts[at]), has_payload=wanted.payloads)
        elif handles[at] in cancelled:
            found[at] = cancelled_message(spots[at])
    return found


def held(state: QueueState, seen: Sight, wanted: Wanted, point: Point, most: int) -> Op[Page]:
    """List what is held back, of one shard key after the other, in the order of writing."""
    run = run_of(wanted.shard_key) if wanted.shard_key else b""
    start, end = (b"[" + run + b":", b"(" + run + b";") if run else (b"(", b"(t")
    if point.member:
        start = b"[" + point.member  # it may be there still, with what is left of it
    limits = ("LIMIT", 0, MEMBERS)
    members = yield from ask(state, "ZRANGEBYLEX", state.keys.overflow, start, end, *limits, until=wanted.until)
    found: list[Found] = []
    for member in members:
        is_same_run = bool(point.member) and run_of_member(member) == run_of_member(point.member)
        for number, spot in held_in(member):
            if not (is_same_run and number <= point.number):
                found.append(Found(spot, Point("held_back", member=member, number=number)))
    if len(found) > most:
        return found[:most], found[most - 1].point
    if len(members) < MEMBERS:
        return found, None
    return found, found[-1].point if found else Point("held_back", member=members[-1], number=point.number)


def run_of_member(member: bytes) -> bytes:
    """Return of whose run a member of the overflow is."""
    return member.rsplit(b":", 4)[0]


def _timed(
    kind: Literal["d", "l"], state: QueueState, seen: Sight, wanted: Wanted, point: Point, most: int
) -> Op[Page]:
    """List what an index by time has, in the order of its times: delayed messages, or leases."""
    after = (point.number, point.bucket, point.member) if point.is_begun else ("", "", "")
    step = BUCKETS_LOOKED if seen.is_fair and not wanted.shard_key else BUCKETS
    rows: list[tuple[bytes, bytes, bytes, bytes]] = []
    has_more, now, latest = False, 0, b""
    for first in range(0, BUCKETS if seen.is_fair else 1, step):
        last = min(first + step, BUCKETS) - 1 if seen.is_fair else 0
        key = wanted.shard_key if seen.is_fair else b""
        call = Call.on(state.keys, "soonest", (kind, first, last, key, *after, latest, most))
        now, flat, times = yield from retry_until(lambda _, call=call: call, wanted.until, state.clock)  # type: ignore[misc]
        rows += zip(flat[1::3], flat[2::3], flat[::3], times, strict=True)
        has_more = has_more or len(times) == most
        rows.sort(key=lambda row: (int(row[0]), int(row[1])))
        latest = rows[most - 1][0] if len(rows) >= most else b""  # other buckets need say nothing of what comes later
    found = []
    for time, bucket, member, shown in rows[:most]:
        behind = Point(point.kind, member=member, number=int(time), bucket=int(bucket))
        if spot := _timed_spot(kind, member, int(shown), int(now)):
            found.append(Found(spot, behind))
    return found, behind if rows and (has_more or len(rows) > most) else None


def _timed_spot(kind: str, member: bytes, until: int, now: int) -> Spot | None:
    """Return where the message of a member is; None if another program put the member there."""
    if kind == "d":
        place, colon, entry = member.decode(errors="replace").partition(":")
        return Spot(place, entry, "delayed" if until > now else "waiting", until_ms=until) if colon else None
    lease = lease_of(member)
    if lease is None:
        return None
    return Spot(lease.place, lease.entry, "in_flight" if until > now else "waiting", until_ms=until, lease=lease)


delayed: Lister = partial(_timed, "d")
"""List delayed messages, in the order in which they come due."""

in_flight: Lister = partial(_timed, "l")
"""List messages in flight, in the order in which their leases end."""
