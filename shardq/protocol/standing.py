"""Read what is said of messages that are only looked at: the reply of `status`, and the parts of what `peek` shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardq.model import MessageId, MessageStatus
from shardq.protocol.replies import Body, body_of, number_of

LEGACY = 4096
"""Stands for the legacy stream."""

SHOWN_HOLDER = 8
"""So much of a holder's nonce is shown: it tells holders apart, and is no lease token."""

_TOKEN = re.compile(rb"((\w{1,4}):(\d{1,16}-\d{1,20})):(\d{1,10}):([^:]*)(?::[\d,]*:(.*))?", re.DOTALL)
_KNOWN = re.compile(rb"(\d{1,10})@?(\d{0,16})\|(-?)[\d,-]*\|(.*)", re.DOTALL)


class Lease(NamedTuple):
    """What a lease token says. `shard_key` is None if the message does not count in the admission window."""

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


class Known(NamedTuple):
    """What the queue remembers of a message that was given back, delayed or redriven. `since_ms` is 0 if not known."""

    deliveries: int = 0
    since_ms: int = 0
    is_parked: bool = False
    last_error: str = ""


def known_of(text: bytes | None) -> Known:
    """Read what is known of a message; that is nothing for one that was never delivered."""
    found = _KNOWN.fullmatch(text or b"")
    if found is None:
        return Known()
    return Known(int(found[1]), int(found[2] or 0), found[3] == b"-", found[4].decode(errors="replace"))


def bare_body(flat: Sequence[bytes]) -> tuple[Body, int]:
    """Read fields without a payload, as `strip_payload` returns them: the body, and the size of its payload."""
    body = body_of(flat, foreign=False)
    size = flat[3] if len(flat) > 3 else b""
    return body, int(size) if size.isdigit() else 0


def deadline_of(body: Body) -> float | None:
    """Return the message's own deadline, in seconds."""
    return number_of(body.attributes, "x") / 1000 or None


def message_status(message_id: str, reply: Sequence[Any]) -> MessageStatus:
    """Read the reply of `status`."""
    now_ms, state, stream, until, ahead, reason, token, text, cancelled, flat = reply
    now, name, lease, known = int(now_ms) / 1000, state.decode(), lease_of(token), known_of(text)
    if name == "unknown":
        return MessageStatus(message_id, "unknown", now)
    body, size = bare_body(flat) if flat else (None, None)
    deadline = deadline_of(body) if body else None
    before = number_of(body.attributes, "c") if body else 0
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
    )
