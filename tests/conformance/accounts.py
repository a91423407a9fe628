"""Count what each shard key holds by reading the raw keys: the accounts of the admission window must be equal to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shardq.keys import QueueKeys

PLACES = 2**40


def problems(raw: Any, keys: QueueKeys) -> list[str]:
    """Where the accounts differ from a full count; nothing in a sound queue."""
    accounts = raw.hgetall(keys.tenants)
    parents = raw.hget(keys.meta, "parents") == b"1"
    shared: Counter[bytes] = Counter(_name(key, parents) for key in _undelivered(raw, keys))
    held: Counter[bytes] = Counter(_run(member) for member in raw.zrange(keys.overflow, 0, -1) if member)
    told = {field[2:]: tuple(map(int, text.split())) for field, text in accounts.items() if field[:2] == b"t:"}
    found = {name: (shared[name], held[name]) for name in shared | held}
    told_of = {name: numbers[:2] for name, numbers in told.items()}
    wrong = [f"{name!r} holds {found.get(name)}, its account says {told_of.get(name)}"
             for name in found.keys() | told_of.keys() if found.get(name) != told_of.get(name)]  # fmt: skip
    active = int(accounts.get(b"active", 0))
    return wrong + ([f"{active} are said to be active, not {len(found)}"] if active != len(found) else [])


def _undelivered(raw: Any, keys: QueueKeys) -> list[bytes]:
    """The shard keys of the messages that count and are in the shared streams, each as often as it has one there."""
    lens, found = raw.hgetall(keys.lens), []
    for number in range(int(raw.hget(keys.meta, "streams"))):
        cursor = lens.get(b"h%d" % number, b"0-0").decode()
        found += [fields for _, fields in raw.xrange(keys.stream(number), f"({cursor}", "+")]
    for handle in raw.zrange(keys.returned, 0, -1):
        if handle:
            place, entry = handle.decode().split(":")
            body = raw.xrange(keys.later if place == "d" else keys.stream(int(place)), entry, entry)
            found += [fields for _, fields in body]
    return [fields[b"K"] for fields in found if b"K" in fields]


def _name(key: bytes, parents: bool) -> bytes:
    return (key.split(b"/")[0] or key) if parents else key


def _run(member: bytes) -> bytes:
    size, rest = member.split(b":", 1)
    return rest[: int(size)]
