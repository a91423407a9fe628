"""What is in every key of a queue at one instant, read raw and taken apart; nothing of the product takes part in it.

The census counts all messages and accounts; here are the parts that it does not tell: tokens, times, letters, what is
remembered. lua/ says what the keys hold.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from shardq.protocol.keys import QueueKeys
from tests.conformance.census import Census, take
from tests.state import spelled_out

NEVER = 9e15
FAR = 9 * 10**12
"""Times from here on never come."""

SORTED = (
    "turns",
    "due",
    "leases",
    "delayed",
    "returned",
    "producers",
    "dedup_index",
    "bulk_offsets",
    "result_ends",
    "schedule_due",
)
HASHES = (
    "meta", "bodies", "errors", "moved", "dedup", "assigned", "limits", "results", "schedules", "workers", "minutes",
    "failures", "actions",
)  # fmt: skip
OF_SHARD_KEYS = (b"t:", b"c:", b"p:", b"D:", b"X:", b"R:")
"""How fields of the state begin that are of one shard key, parent or producer."""
STREAMS = ("notifications", "dead", "journal", "finished")


@dataclass(frozen=True)
class Lease:
    """A member of `leases`, taken apart."""

    token: bytes
    count: int
    holder: str
    key: bytes
    ends: float


@dataclass(frozen=True)
class Apart:
    """A member of `delayed` or `returned`, taken apart: its due time where it has one, deliveries so far, and flags."""

    member: bytes
    name: bytes
    due: int
    count: int
    flags: str


@dataclass
class Ledger:
    """One instant. Handles are `place:entry id`."""

    now: float
    census: Census
    hashes: dict[str, dict[bytes, bytes]]
    sorted: dict[str, dict[bytes, float]]
    streams: dict[str, list[tuple[str, dict[bytes, bytes]]]]
    cancelled: set[bytes]
    stored: set[str]
    meta: dict[str, str] = field(default_factory=dict)  # but for what is said of shard keys
    leased: dict[str, Lease] = field(default_factory=dict)
    delayed: dict[str, Apart] = field(default_factory=dict)
    returned: dict[str, Apart] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)  # handle: stream
    letters: dict[str, str] = field(default_factory=dict)  # id of a dead letter: its entry

    @property
    def held(self) -> set[str]:
        """The handles of what waits in overflows."""
        return self.census.held

    @property
    def known(self) -> set[str]:
        """The handles of all that count: a message cancelled in flight counts until its lease ends."""
        return self.census.messages

    def id_of(self, handle: str) -> str:
        """The id that the writer was given."""
        place, _, entry = handle.partition(":")
        return self.census.names.get(handle) or f"{entry}-{place}"

    def places_of(self, handle: str) -> list[str]:
        """Where it is: exactly one place in a sound queue."""
        places: dict[str, Container[str]] = {
            "new": self.new, "returned": self.returned, "leased": self.leased, "delayed": self.delayed,
            "held": self.held,
        }  # fmt: skip
        return [name for name, place in places.items() if handle in place]


def look(raw: Any, keys: QueueKeys) -> Ledger:
    """Everything; nobody else uses the queue meanwhile."""
    count = int(raw.hget(keys.meta, "streams"))
    with raw.pipeline(transaction=True) as pipe:
        pipe.time()
        pipe.keys(f"{keys.prefix}*")
        pipe.smembers(keys.cancelled)
        for name in HASHES:
            pipe.hgetall(getattr(keys, name))
        for name in SORTED:
            pipe.zrange(getattr(keys, name), 0, -1, withscores=True)
        for key in [*(getattr(keys, name) for name in STREAMS), *map(keys.stream, range(count))]:
            pipe.xrange(key)
        (seconds, micros), stored, cancelled, *rest = pipe.execute()
    hashes = dict(zip(HASHES, rest, strict=False))
    zsets = {name: dict(pairs) for name, pairs in zip(SORTED, rest[len(HASHES) :], strict=False)}
    names = [*STREAMS, *(f"s{number}" for number in range(count))]
    streams = {name: [(entry.decode(), fields) for entry, fields in rows]
               for name, rows in zip(names, rest[len(HASHES) + len(SORTED) :], strict=True)}  # fmt: skip
    now, there = int(seconds) * 1000 + int(micros) // 1000, {key.decode() for key in stored}
    found = Ledger(now, take(raw, keys), hashes, zsets, streams, cancelled, there)
    _take_apart(found)
    return found


def _take_apart(found: Ledger) -> None:
    told = {name: value for name, value in found.hashes["meta"].items() if name[:2] not in OF_SHARD_KEYS}
    found.meta = spelled_out({name.decode(): value.decode() for name, value in told.items()})
    found.new = {handle: int(handle.partition(":")[0]) for handle in found.census.new}
    moved = {name.decode(errors="surrogateescape"): where.decode() for name, where in found.hashes["moved"].items()}
    found.letters = {name: where[2:].partition("|")[0] for name, where in moved.items() if where.startswith("x:")}
    for token, ends in found.sorted["leases"].items():
        if token:
            place, entry, number, holder, _, key = token.split(b":", 5)
            handle = f"{place.decode()}:{entry.decode()}"
            found.leased[handle] = Lease(token, int(number), holder.decode(), key, ends)
    for member in (each for each in found.sorted["delayed"] if each[:1].isdigit()):  # the others are of children
        name, rest = split(member)
        due, place, entry, attempts, _ = rest.split(b":", 4)
        found.delayed[f"{place.decode()}:{entry.decode()}"] = _apart(member, name, int(due), attempts)
    for member in filter(None, found.sorted["returned"]):
        name, rest = split(member)
        _, place, entry, attempts, _ = rest.split(b":")
        found.returned[f"{place.decode()}:{entry.decode()}"] = _apart(member, name, 0, attempts)


def split(member: bytes) -> tuple[bytes, bytes]:
    """The name that stands in front of a member with its size, and the rest."""
    size, _, rest = member.partition(b":")
    return rest[: int(size)], rest[int(size) + 1 :]


def _apart(member: bytes, name: bytes, due: int, attempts: bytes) -> Apart:
    text = attempts.decode()
    digits = text.rstrip("elLur")
    return Apart(member, name, due, int(digits), text[len(digits) :].replace("L", "l"))  # as `DeadLetters.error_of`


def order(entry: str) -> tuple[int, int]:
    """What entry ids are ordered by."""
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
