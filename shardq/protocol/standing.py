"""Parse the replies of `status` and `peek`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardq.model import DeadLetter, MessageId, MessageStatus, PeekedMessage, PeekState
from shardq.model.call import called
from shardq.protocol.bodies import EntryBody, entry_body, number_of, text_or_bytes
from shardq.protocol.results import VALUE, DoneResult, KeptResult, read_done, read_ended, read_progress

LEGACY = 4096
"""Stands for the legacy stream."""

SHOWN_HOLDER = 8
"""Letters of a holder's nonce that are shown: they distinguish holders, and are no lease token."""

_TOKEN = re.compile(rb"((\w{1,4}):(\d{1,16}-\d{1,20})):(\d{1,10}):([^:]*)(?::[\w,-]*:(.*))?", re.DOTALL)
_KNOWN = re.compile(rb"(\d{1,10})@?(\d{0,16})\|(-?)[\d,-]*\|([^|]*)\|(.*)", re.DOTALL)


class Lease(NamedTuple):
    """The contents of a lease token. `shard_key` is None if the message does not count in the admission window."""

    handle: bytes
    place: str
    entry: str
    deliveries: int
    holder: str
    shard_key: bytes | None


def lease_of(token: bytes) -> Lease | None:
    """Read a lease token; None if it is none."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    handle, place, entry, count, holder, shard_key = found.groups()
    return Lease(handle, place.decode(), entry.decode(), int(count), holder[:SHOWN_HOLDER].decode(), shard_key)


class KnownStanding(NamedTuple):
    """The queue's record of a message that was given back, delayed or redriven. `since_ms` is 0 if not known."""

    deliveries: int = 0
    since_ms: int = 0
    waits_for_room: bool = False
    last_error: str = ""
    error_type: str = ""


def known_of(text: bytes | None) -> KnownStanding:
    """Read what is known of a message; that is nothing for one that was never delivered."""
    found = _KNOWN.fullmatch(text or b"")
    if found is None:
        return KnownStanding()
    kind, error = found[4].decode(errors="replace"), found[5].decode(errors="replace")
    return KnownStanding(int(found[1]), int(found[2] or 0), found[3] == b"-", error, kind.partition(" ")[0])


def bare_body(flat: Sequence[bytes]) -> tuple[EntryBody, int, str]:
    """Read fields without a payload, as `strip_payload` returns them: the body, the payload's size, and its task."""
    body = entry_body(flat, foreign=False)
    size, _, begin = flat[3].partition(b" ") if len(flat) > 3 else (b"", b"", b"")
    return body, int(size) if size.isdigit() else 0, called(body.tag, begin)


def deadline_of(body: EntryBody) -> float | None:
    """Return the message's own deadline, in seconds."""
    return number_of(body.attributes, "x") / 1000 or None


class Whole(NamedTuple):
    """All that is known of a message: where it is, its payload while it exists, and what is kept of it."""

    status: MessageStatus
    tag: str
    body: bytes
    kept: KeptResult | None


def whole_of(message_id: str, reply: Sequence[Any]) -> Whole:
    """Read the reply of `status` to those who want the whole."""
    *bare, kept = reply
    ended, flat = read_ended(kept), reply[9]
    body = entry_body(flat, foreign=False) if flat else None
    if body is None:
        return Whole(message_status(message_id, bare), "", b"", ended.result if ended else None)
    bare[9] = [*flat[:3], b"", *flat[4:]]
    status = replace(message_status(message_id, bare), size=len(body.payload), task=called(body.tag, body.payload))
    return Whole(status, body.tag, body.payload, ended.result if ended else None)


def message_status(message_id: str, reply: Sequence[Any]) -> MessageStatus:
    """Read the reply of `status`."""
    now_ms, state, stream, until, ahead, reason, token, text, cancelled, flat, last = reply
    now, name, lease, known = int(now_ms) / 1000, state.decode(), lease_of(token), known_of(text)
    if name == "unknown":
        return MessageStatus(message_id, "unknown", now)
    if name == "done":
        return _done_status(message_id, now, read_done(last))
    body, size, task = bare_body(flat) if flat else (None, None, "")
    deadline = deadline_of(body) if body else None
    before = number_of(body.attributes, "c") if body and name != "dead" else 0  # a letter counts them already
    deliveries = lease.deliveries if lease else known.deliveries + (name == "in_flight")
    return MessageStatus(
        message_id=message_id,
        state=name,
        time=now,
        shard_key=body.shard_key if body else None,
        stream=int(stream) if stream and int(stream) < LEGACY else None,
        ahead=int(ahead) if int(ahead) >= 0 else None,
        reason="deadline" if name == "waiting" and deadline and deadline <= now else reason.decode(),
        until=int(until) / 1000 if until else None,
        holder=lease.holder if lease else None,
        cancelled=bool(cancelled),
        written_at=MessageId.parse(message_id).written_ms / 1000,
        since=known.since_ms / 1000 or None,
        deadline=deadline,
        deliveries=None if cancelled and not lease else deliveries + before,
        last_error=known.last_error,
        headers=body.headers if body else {},
        size=size,
        task=task,
        progress=read_progress(last),
        error_type=known.error_type,
    )


def _done_status(message_id: str, now: float, done: DoneResult) -> MessageStatus:
    return MessageStatus(
        message_id,
        "done",
        now,
        reason="" if done.kind == VALUE else done.kind,
        until=done.ends,
        written_at=MessageId.parse(message_id).written_ms / 1000,
        since=done.at,
        size=done.size,
    )


class StandingSpot(NamedTuple):
    """Where a message was found, and what that says of it. Times are ms of the server's clock."""

    place: str
    entry: str
    state: PeekState
    stream: int | None = None
    until_ms: int | None = None
    lease: Lease | None = None

    @property
    def handle(self) -> str:
        """The message's handle."""
        return f"{self.place}:{self.entry}"


def peeked_message(
    spot: StandingSpot, flat: Sequence[bytes], known: KnownStanding, *, has_payload: bool
) -> PeekedMessage:
    """Make the message that was found at *spot* from its fields *flat*; without payload these are bare."""
    if has_payload:
        body = entry_body(flat, foreign=spot.place == "l")
        size = len(body.payload) if body.fields is None else sum(map(len, flat))
        task = called(body.tag, body.payload)
    else:
        body, size, task = bare_body(flat)
    message_id = f"{spot.entry}-{spot.place}"
    deliveries = spot.lease.deliveries if spot.lease else known.deliveries
    return PeekedMessage(
        message_id=message_id,
        state=spot.state,
        shard_key=body.shard_key,
        written_at=written_at(message_id),
        stream=spot.stream,
        since=known.since_ms / 1000 or None,
        until=None if spot.until_ms is None else spot.until_ms / 1000,
        holder=spot.lease.holder if spot.lease else None,
        deadline=deadline_of(body),
        deliveries=deliveries + number_of(body.attributes, "c"),
        last_error=known.last_error,
        reason="max_dead" if known.waits_for_room else "",
        headers=body.headers,
        size=size,
        task=task,
        body=body.payload if has_payload else None,
        tag=body.tag,
        fields=body.fields if has_payload else None,
        error_type=known.error_type,
    )


def cancelled_message(spot: StandingSpot) -> PeekedMessage:
    """Make a message that was cancelled while it was in flight: only its lease is left."""
    message_id, lease = f"{spot.entry}-{spot.place}", spot.lease
    shard_key = lease.shard_key if lease else None
    return PeekedMessage(
        message_id=message_id,
        state=spot.state,
        shard_key=text_or_bytes(shard_key or b""),
        written_at=written_at(message_id),
        until=None if spot.until_ms is None else spot.until_ms / 1000,
        holder=lease.holder if lease else None,
        cancelled=True,
        deliveries=lease.deliveries if lease else 0,
    )


def peeked_letter(letter: DeadLetter, *, has_payload: bool) -> PeekedMessage:
    """Make a message of a dead letter."""
    fields = letter.fields
    size = len(letter.body) if fields is None else sum(len(name.encode()) + len(fields[name]) for name in fields)
    return PeekedMessage(
        message_id=letter.message_id,
        state="dead",
        shard_key=letter.shard_key,
        written_at=letter.written_at,
        since=letter.died_at,
        deliveries=letter.count,
        last_error=letter.last_error,
        reason=letter.reason,
        headers=letter.headers,
        size=size,
        task=letter.task,
        body=letter.body if has_payload else None,
        tag=letter.tag,
        fields=fields if has_payload else None,
        error_type=letter.error_type,
    )


def written_at(message_id: str) -> float:
    """Return when a message was written, in seconds: its id says so. 0 if another program gave it a bad id."""
    ms = message_id.partition("-")[0]
    return int(ms) / 1000 if len(ms) <= 16 and ms.isdecimal() else 0.0
