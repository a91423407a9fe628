"""What is in every key of a queue at one instant, read raw and taken apart; nothing of the product takes part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from shardq.protocol.keys import QueueKeys

PLACES = 2**40
"""Scores of what waits in line are turn * 2^40 + position."""

TIMES = 2**42
"""Scores of deadlines and due times are a time in ms, above which other things may be kept."""

NEVER = 9e15
SORTED = (
    "ready",
    "leases",
    "delayed",
    "redelivery",
    "dedup_index",
    "overflow",
    "producers",
    "bulk_offsets",
    "due",
    "result_ends",
)
HASHES = ("meta", "lens", "attempts", "dedup", "moved", "accounts", "shard_keys", "assigned", "limits", "results")
STREAMS = ("notifications", "bodies", "dead", "journal", "finished")


def time_of(score: float) -> int:
    """The time in ms that a score in `leases` or `delayed` holds."""
    return int(score) % TIMES


@dataclass(frozen=True)
class Lease:
    """A member of `leases`, taken apart."""

    token: bytes
    handle: str
    count: int
    holder: str
    key: bytes | None
    ends: int


@dataclass
class Ledger:
    """One instant. Handles are `place:entry id`."""

    now: int
    meta: dict[str, str]
    hashes: dict[str, dict[bytes, bytes]]
    sorted: dict[str, dict[bytes, float]]
    streams: dict[str, list[tuple[str, dict[bytes, bytes]]]]  # the four above, and s0, s1, ...
    cancelled: set[bytes]
    stored: set[str]
    bodies: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)  # handle: stream
    returned: dict[str, tuple[int, int]] = field(default_factory=dict)  # handle: stream, position
    leased: dict[str, Lease] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)  # handle: due time
    held: dict[str, bytes] = field(default_factory=dict)  # handle: shard key
    turns: dict[bytes, int] = field(default_factory=dict)  # child: tag of its turn
    ids: dict[str, str] = field(default_factory=dict)  # handle of a redriven message: its id
    letters: dict[str, str] = field(default_factory=dict)  # id of a dead letter: its entry
    doubled: list[str] = field(default_factory=list)

    @property
    def known(self) -> set[str]:
        """The handles of all that count: a message cancelled in flight has no body, and counts until its lease ends."""
        return set(self.bodies) | {each.decode() for each in self.cancelled if each}

    def id_of(self, handle: str) -> str:
        """The id that the writer was given."""
        place, _, entry = handle.partition(":")
        return self.ids.get(handle) or f"{entry}-{place}"

    def places_of(self, handle: str) -> list[str]:
        """Where it is: exactly one place in a sound queue."""
        places: dict[str, Container[str]] = {
            "new": self.new, "redelivery": self.returned, "leased": self.leased,
            "delayed": self.delayed, "held": self.held,
        }  # fmt: skip
        return [name for name, place in places.items() if handle in place]

    def shared(self) -> Counter[bytes]:
        """Of each shard key the messages that count and are in the shared streams."""
        where = [*self.new, *self.returned]
        return Counter(key for handle in where if (key := self.bodies.get(handle, {}).get(b"K")) is not None)

    def given_back(self) -> Counter[bytes]:
        """Of each shard key the messages that count, lie in a stream, and are to be delivered again."""
        where = (handle for handle in self.returned if handle[:1].isdigit())
        return Counter(key for handle in where if (key := self.bodies.get(handle, {}).get(b"K")) is not None)

    def held_back(self) -> Counter[bytes]:
        """Of each shard key the messages in its overflow."""
        return Counter(self.held.values())

    def per_stream(self) -> Counter[int]:
        """Of each stream the messages that wait for its turns."""
        return Counter([*self.new.values(), *(stream for stream, _ in self.returned.values())])


def look(raw: Any, keys: QueueKeys) -> Ledger:
    """Everything, in one transaction."""
    count, indexes = int(raw.hget(keys.meta, "streams")), [name for name in SORTED if hasattr(keys, name)]
    with raw.pipeline(transaction=True) as pipe:
        pipe.time()
        pipe.keys(f"{keys.prefix}*")
        pipe.smembers(keys.cancelled)
        for name in HASHES:
            pipe.hgetall(getattr(keys, name))
        for name in indexes:
            pipe.zrange(getattr(keys, name), 0, -1, withscores=True)
        for key in [*(getattr(keys, name) for name in STREAMS), *map(keys.stream, range(count))]:
            pipe.xrange(key)
        (seconds, micros), stored, cancelled, *rest = pipe.execute()
    hashes = dict(zip(HASHES, rest, strict=False))
    zsets = {name: dict(pairs) for name, pairs in zip(indexes, rest[len(HASHES) :], strict=False)}
    names = [*STREAMS, *(f"s{number}" for number in range(count))]
    streams = {name: [(entry.decode(), fields) for entry, fields in rows]
               for name, rows in zip(names, rest[len(HASHES) + len(indexes) :], strict=True)}  # fmt: skip
    meta = {name.decode(): value.decode() for name, value in hashes["meta"].items()}
    now = int(seconds) * 1000 + int(micros) // 1000
    found = Ledger(now, meta, hashes, zsets, streams, cancelled, {key.decode() for key in stored})
    _take_apart(found, count)
    return found


def _take_apart(found: Ledger, count: int) -> None:
    lens = found.hashes["lens"]
    for number in range(count):
        cursor = order(lens.get(b"h%d" % number, b"0-0").decode())
        for entry, fields in found.streams[f"s{number}"]:
            found.bodies[f"{number}:{entry}"] = fields
            if order(entry) > cursor:
                found.new[f"{number}:{entry}"] = number
    found.bodies |= {f"d:{entry}": fields for entry, fields in found.streams["bodies"]}
    moved = {origin.decode(): handle.decode() for origin, handle in found.hashes["moved"].items() if origin}
    found.ids = {handle: origin for origin, handle in moved.items() if not handle.startswith("x:")}
    found.letters = {origin: handle[2:] for origin, handle in moved.items() if handle.startswith("x:")}
    found.returned = {member.decode(): divmod(int(score), PLACES)
                      for member, score in found.sorted["redelivery"].items() if member}  # fmt: skip
    found.delayed = {member.decode(): time_of(score) for member, score in found.sorted["delayed"].items() if member}
    for token, score in found.sorted["leases"].items():
        if token:
            lease = _lease(token, score)
            found.doubled += [lease.handle] if lease.handle in found.leased else []
            found.leased[lease.handle] = lease
    for member in found.sorted["overflow"]:
        if member.startswith(b"t"):
            tag, key = _turn(member)
            found.doubled += [f"turn of {key!r}"] if key in found.turns else []
            found.turns[key] = tag
        elif member:
            for handle, key in _run(member):
                found.doubled += [handle] if handle in found.held else []
                found.held[handle] = key


def _lease(token: bytes, score: float) -> Lease:
    place, entry, count, holder, *owner = token.split(b":", 5)
    return Lease(token, f"{place.decode()}:{entry.decode()}", int(count), holder.decode(),
                 owner[1] if owner else None, time_of(score))  # fmt: skip


def _turn(member: bytes) -> tuple[int, bytes]:
    """Of `t<length>:<parent>:<tag>:<child>` the tag and the child."""
    size, _, rest = member[1:].partition(b":")
    tag, _, key = rest[int(size) + 1 :].partition(b":")
    return int(tag), key


def _run(member: bytes) -> Iterator[tuple[str, bytes]]:
    """The handles in `length:key:<letter>n,n,...:streams:place:ms`, and their shard key."""
    size, _, rest = member.partition(b":")
    key, text = rest[: int(size)], rest[int(size) + 1 :].decode()
    numbers, _, place, ms = text.split(":")
    each = list(map(int, numbers[1:].split(",")))
    assert ord(numbers[0]) - 64 == len(str(each[0])), f"a run sorts by a wrong letter: {member!r}"
    assert each == sorted(set(each)), f"a run is out of order: {member!r}"
    return ((f"{place.rstrip('!')}:{ms}-{number}", key) for number in each)


def order(entry: str) -> tuple[int, int]:
    """What entry ids are ordered by."""
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
