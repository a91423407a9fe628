"""Count what each shard key holds by reading the raw keys: the accounts of the admission window must be equal to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shardq.engine import NEW
from shardq.protocol.keys import QueueKeys
from tests.conformance import next_census

PLACES = 2**40


def problems(raw: Any, keys: QueueKeys) -> list[str]:
    """Where the accounts differ from a full count; nothing in a sound queue."""
    if NEW:
        return next_census.take(raw, keys).problems()
    accounts = raw.hgetall(keys.accounts)
    parents = raw.hget(keys.meta, "parents") == b"1"
    shared: Counter[bytes] = Counter(_name(key, parents) for key in _undelivered(raw, keys))
    runs, turns = _overflow(raw, keys)
    held: Counter[bytes] = Counter()
    for key, count in runs.items():
        held[_name(key, parents)] += count
    delayed = Counter(_name(key, parents) for handle, key in raw.hgetall(keys.shard_keys).items() if handle)
    found = {name: (shared[name], held[name], delayed[name]) for name in shared | held | delayed}
    told_of = {field[2:]: _told(text.split()) for field, text in accounts.items() if field[:2] == b"t:"}
    wrong = [f"{name!r} holds {found.get(name)}, its account says {told_of.get(name)}"
             for name in found.keys() | told_of.keys() if found.get(name) != told_of.get(name)]  # fmt: skip
    active, held_back, *rest = map(int, accounts.get(b"sum", b"0 0").split())
    if (active, held_back) != (len(shared | held), held.total()):
        wrong.append(f"active, held back are said to be {active, held_back}, not {len(shared | held), held.total()}")
    withheld = sum(int(word[1:]) for field, text in accounts.items() if field[:2] == b"t:"
                   for word in text.split() if word[:1] == b"!")  # fmt: skip
    if rest != ([withheld] if withheld else []):
        wrong.append(f"{rest} are said to be withheld, the accounts say {withheld}")
    children = {field[2:]: tuple(map(int, text.split())) for field, text in accounts.items() if field[:2] == b"c:"}
    expected = {key: count for key, count in runs.items() if parents}
    if {key: count for key, (count, _) in children.items()} != expected:
        wrong.append(f"children hold {expected}, their accounts say {children}")
    if {key: tag for key, (_, tag) in children.items()} != turns:
        wrong.append(f"the turns of children are {turns}, their accounts say {children}")
    return wrong + _flights(raw, keys, accounts, parents)


def _told(words: list[bytes]) -> tuple[int, int, int]:
    """What an account says: in the shared streams, held back, delayed."""
    return int(words[0]), int(words[1]), int(words[-1][1:]) if words[-1][:1] == b"+" else 0


def _overflow(raw: Any, keys: QueueKeys) -> tuple[Counter[bytes], dict[bytes, int]]:
    """How many are held of each shard key, and the tags of the children whose turn comes."""
    runs: Counter[bytes] = Counter()
    turns: dict[bytes, int] = {}
    for member in raw.zrange(keys.overflow, 0, -1):
        size, _, rest = member.removeprefix(b"t").partition(b":")
        if member.startswith(b"t"):
            tag, _, key = rest[int(size) + 1 :].partition(b":")
            assert key not in turns, f"{key!r} has two turns"
            turns[key] = int(tag)
        elif member:
            runs[rest[: int(size)]] += len(rest[int(size) + 1 :].split(b":")[0].split(b","))
    return runs, turns


def _flights(raw: Any, keys: QueueKeys, accounts: dict[bytes, bytes], parents: bool) -> list[str]:
    """Deliveries in flight, where they are counted: those of the present cap can be no more than there are leases."""
    told: dict[bytes, list[bytes]] = {field[2:]: text.split() for field, text in accounts.items() if field[:2] == b"f:"}
    leased: Counter[bytes] = Counter()
    for token in raw.zrange(keys.leases, 0, -1):
        if token.count(b":") > 3:
            leased[_name(token.split(b":", 5)[5], parents)] += 1
    since = raw.hget(keys.meta, "cap_no")
    return [f"{name!r} has {leased[name]} in flight, its account says {count!r}"
            for name, (number, count) in told.items() if number == since and int(count) > leased[name]]  # fmt: skip


def _undelivered(raw: Any, keys: QueueKeys) -> list[bytes]:
    """The shard keys of the messages that count and are in the shared streams, each as often as it has one there."""
    lens, handles = raw.hgetall(keys.lens), raw.zrange(keys.redelivery, 0, -1)
    with raw.pipeline(transaction=False) as pipe:
        for number in range(int(raw.hget(keys.meta, "streams"))):
            cursor = lens.get(b"h%d" % number, b"0-0").decode()
            pipe.xrange(keys.stream(number), f"({cursor}", "+")
        for handle in filter(None, handles):
            place, entry = handle.decode().split(":")
            pipe.xrange(keys.bodies if place == "d" else keys.stream(int(place)), entry, entry)
        found = [fields for rows in pipe.execute() for _, fields in rows]
    return [fields[b"K"] for fields in found if b"K" in fields]


def _name(key: bytes, parents: bool) -> bytes:
    return (key.split(b"/")[0] or key) if parents else key
