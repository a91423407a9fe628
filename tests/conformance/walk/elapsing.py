"""Time that passes, and what is put off: every time that is stored is moved, which to the library is the same."""

from __future__ import annotations

import re
from typing import Any

from shardq.protocol.keys import QueueKeys
from tests.conformance.walk.ledger import FAR, NEVER, Ledger


def elapse(raw: Any, keys: QueueKeys, found: Ledger, ms: int) -> None:
    """Move all times back by so many ms."""
    fields = {
        keys.dedup: {
            field: _earlier(text, ms)
            for field, text in found.hashes["dedup"].items()
            if field[:2] not in (b"", b"u:", b"l:")
        },
        keys.limits: {name: _moved_limits(text, ms) for name, text in found.hashes["limits"].items() if name},
        keys.meta: {field: moved for field, text in found.hashes["meta"].items() if (moved := _moved(field, text, ms))},
    }
    with raw.pipeline(transaction=True) as pipe:
        for name in ("leases", "due", "dedup_index", "producers", "bulk_offsets"):
            for member, score in found.sorted[name].items():
                if score < NEVER:
                    pipe.zincrby(getattr(keys, name), -ms, member)
        for handle in found.delayed:
            _move_delayed(pipe, keys, found, handle, -ms)
        for key, moved_fields in fields.items():
            if moved_fields:
                pipe.hset(key, mapping=moved_fields)
        pipe.execute()


def put_off(raw: Any, keys: QueueKeys, found: Ledger, handle: str, ms: int) -> None:
    """Move the due time of one message ahead."""
    with raw.pipeline(transaction=True) as pipe:
        _move_delayed(pipe, keys, found, handle, ms)
        pipe.execute()


def _move_delayed(pipe: Any, keys: QueueKeys, found: Ledger, handle: str, ms: int) -> None:
    """Its time stands in its member, in its body if that was its first delay, and with its error."""
    apart, entry = found.delayed[handle], handle.partition(":")[2].encode()
    at = len(b"%d:%b:" % (len(apart.name), apart.name))
    pipe.zrem(keys.delayed, apart.member)
    pipe.zadd(keys.delayed, {apart.member[:at] + b"%014d" % (apart.due + ms) + apart.member[at + 14 :]: 0})
    body, error = found.hashes["bodies"].get(entry), found.hashes["errors"].get(entry)
    if body is not None and b" t%d" % apart.due in body:
        pipe.hset(keys.bodies, entry, body.replace(b" t%d" % apart.due, b" t%d" % (apart.due + ms), 1))
    if error is not None and error.startswith(b"%d|" % apart.due):
        pipe.hset(keys.errors, entry, b"%d|%b" % (apart.due + ms, error.partition(b"|")[2]))


def _earlier(text: bytes, ms: int) -> bytes:
    ends, _, rest = text.partition(b"|")
    return b"%d|%b" % (int(ends) - ms, rest)


def _moved_limits(text: bytes, ms: int) -> bytes:
    head, *who = text.split(b"\n", 1)
    parts = head.split(b",")
    for at in (3, 6, 8):  # when a pause, the limits, and the weight end
        if at < len(parts) and 0 < int(parts[at]) < FAR:
            parts[at] = b"%d" % max(1, int(parts[at]) - ms)
    return b"\n".join([b",".join(parts), *who])


def _moved(field: bytes, text: bytes, ms: int) -> bytes | None:
    """What a field of the state says after that time; None if there is no time in it."""
    if field[:2] == b"p:":
        return _earlier(text, ms)
    if field[:2] == b"t:" and b" " in text:
        words = text.split(b" ")
        for at in (6, 7):  # when its bucket is full, and when time changes something for it
            if float(words[at]) > 0:
                words[at] = b"%.3f" % max(1.0, float(words[at]) - ms)
        if words[10] != b"-":
            words[10] = _moved_limits(words[10], ms)
        return b" ".join(words)
    if field == b"seen_at":
        return b"%b%d" % (text[:1], max(0, int(text[1:]) - ms))
    if field in (b"lease_at", b"full_at") and float(text) < FAR:
        return b"%.3f" % (float(text) - ms)
    if field == b"line":
        words = text.split(b" ")
        words[4] = b"%.3f" % (float(words[4]) - ms) if float(words[4]) < FAR else words[4]  # due_at
        return b" ".join(words)
    if field == b"odd":
        return re.sub(rb"(?<=paused=)\d+", lambda until: _before(until[0], ms), text)
    return None


def _before(until: bytes, ms: int) -> bytes:
    return b"%d" % (int(until) - ms) if int(until) < FAR else until
