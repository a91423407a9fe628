"""Count a queue by reading its raw keys, message by message: what `len` and `stats` say must be equal to it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from shardq.protocol.keys import QueueKeys

LEGACY_STREAM = 4096
SPAN = 2**42  # ms in a bucket of a timed index


@dataclass
class Census:
    """Every message of a queue, by where it is. A handle is `place:entry id`."""

    new: set[str] = field(default_factory=set)
    returned: dict[str, int] = field(default_factory=dict)  # handle: stream
    leased: dict[str, float] = field(default_factory=dict)  # handle: deadline in ms
    delayed: dict[str, float] = field(default_factory=dict)  # handle: due time in ms
    held: set[str] = field(default_factory=set)  # in the overflow
    bodies: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)  # while in flight
    doubled: list[str] = field(default_factory=list)  # leased or held twice
    lens: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)  # handles whose shard key is kept apart
    overlooked: list[str] = field(default_factory=list)  # due before its bucket is said to be
    attempts: set[str] = field(default_factory=set)  # handles of which something is remembered
    moved: set[str] = field(default_factory=set)  # handles of redriven messages
    per_stream: dict[int, int] = field(default_factory=dict)
    now: int = 0
    dead: int = 0
    counted: int = 0  # n + adopted - gone, as in the queue's own counters

    @property
    def messages(self) -> set[str]:
        """All that count: a message that was cancelled in flight has no body, and counts until its lease is over."""
        return self.bodies | self.cancelled

    @property
    def in_flight(self) -> int:
        """Live leases."""
        return sum(1 for ends in self.leased.values() if ends > self.now)

    @property
    def not_due(self) -> int:
        """Delayed messages."""
        return sum(1 for due in self.delayed.values() if due > self.now)

    @property
    def backlog(self) -> int:
        """Deliverable messages: all but those in flight or delayed."""
        return len(self.messages) - self.in_flight - self.not_due

    def problems(self) -> list[str]:
        """What contradicts itself; nothing in a sound queue."""
        return [*self._misplaced(), *self._miscounted(), *self._left_behind()]

    def _misplaced(self) -> Iterator[str]:
        yield from (f"leased or held twice: {handle}" for handle in self.doubled)
        yield from (f"due before its bucket: {member}" for member in self.overlooked)
        places: list[Container[str]] = [self.new, self.returned, self.leased, self.delayed, self.held]
        for handle in self.messages.union(self.new, self.returned, self.leased, self.delayed, self.held):
            found = [handle in place for place in places]
            if sum(found) != 1:
                yield f"{handle} is in {sum(found)} places: {found}"
            if handle not in self.messages:
                yield f"{handle} has no body"
        yield from (f"cancelled, but not in flight: {handle}" for handle in self.cancelled - set(self.leased))

    def _miscounted(self) -> Iterator[str]:
        waiting = {stream for stream, count in self.per_stream.items() if count}
        if self.ready != waiting:
            yield f"ready is {sorted(self.ready)}, not {sorted(waiting)}"
        for stream in waiting.union(self.lens):
            if self.lens.get(stream, 0) != self.per_stream.get(stream, 0):
                yield f"lens of {stream} is {self.lens.get(stream, 0)}, not {self.per_stream.get(stream, 0)}"
        if self.counted != len(self.messages):
            yield f"the counters give {self.counted} messages, there are {len(self.messages)}"

    def _left_behind(self) -> Iterator[str]:
        yield from (f"remembered, but gone: {handle}" for handle in self.attempts - self.messages)
        yield from (f"owned, but not delayed: {handle}" for handle in self.owners - set(self.delayed))
        yield from (f"moved, but gone: {handle}" for handle in self.moved - self.messages)


def take(raw: Any, keys: QueueKeys, legacy: str | None = None) -> Census:
    """Count; nobody else may use the queue meanwhile. Three round trips: a census is taken after many steps."""
    meta, lens = ({name.decode(): value.decode() for name, value in each.items()} for each in _heads(raw, keys))
    streams = [keys.stream(number) for number in range(int(meta["streams"]))]
    found = _read(raw, keys, [*streams, keys.bodies, *([legacy] if legacy else [])])
    seen = Census(
        now=_now(raw, keys),
        dead=found.dead,
        ready={int(stream) for stream in found.ready if stream},
        lens={int(name): int(value) for name, value in lens.items() if name.isdigit()},
        counted=int(meta["n"]) + int(meta["adopted"]) - int(meta["gone"]),
    )
    seen.returned = {handle: int(score) // 2**40 for handle, score in _members(found.returned).items()}
    seen.delayed = {handle: score % SPAN for handle, score in _members(found.delayed).items()}
    seen.overlooked = _overlooked(found, seen.now)
    seen.attempts = {handle.decode() for handle in found.attempts if handle}
    seen.owners = {handle.decode() for handle in found.owners if handle}
    seen.moved = {handle.decode() for handle in found.moved if handle and handle[:2] != b"x:"}  # but dead letters
    seen.cancelled = {handle.decode() for handle in found.cancelled if handle}
    for member in found.overflow:
        held = _held(member) if member[:1].isdigit() else []
        seen.doubled += [handle for handle in held if handle in seen.held]
        seen.held.update(held)
    for token, ends in _members(found.leases).items():
        handle = ":".join(token.split(":")[:2])
        seen.doubled += [handle] if handle in seen.leased else []
        seen.leased[handle] = ends % SPAN
    for number, key in enumerate(streams):
        entries = found.entries[key]
        seen.bodies |= {f"{number}:{entry}" for entry in entries}
        cursor = _order(lens.get(f"h{number}", "0-0"))
        new = {f"{number}:{entry}" for entry in entries if _order(entry) > cursor}
        seen.new |= new
        seen.per_stream[number] = len(new)
    seen.bodies |= {f"d:{entry}" for entry in found.entries[keys.bodies]}
    if legacy:
        touched = {*seen.returned, *seen.leased, *seen.delayed}
        seen.bodies |= {f"l:{entry}" for entry in found.entries[legacy] if f"l:{entry}" in touched}
    for number in seen.returned.values():
        seen.per_stream[number] = seen.per_stream.get(number, 0) + 1
    return seen


@dataclass
class _Found:
    """What Redis keeps of the queue, as it was read; `entries` are the ids in each stream."""

    entries: dict[str, list[str]]
    dead: int
    ready: list[bytes]
    returned: list[Any]
    delayed: list[Any]
    leases: list[Any]
    due: list[Any]
    attempts: list[bytes]
    owners: list[bytes]
    moved: list[bytes]
    cancelled: set[bytes]
    overflow: list[bytes]


def _heads(raw: Any, keys: QueueKeys) -> Any:
    with raw.pipeline(transaction=False) as pipe:
        pipe.hgetall(keys.meta)
        pipe.hgetall(keys.lens)
        return pipe.execute()


def _read(raw: Any, keys: QueueKeys, streams: list[str]) -> _Found:
    with raw.pipeline(transaction=False) as pipe:
        pipe.xlen(keys.dead)
        pipe.zrange(keys.ready, 0, -1)
        for key in (keys.redelivery, keys.delayed, keys.leases, keys.due):
            pipe.zrange(key, 0, -1, withscores=True)
        for key in (keys.attempts, keys.shard_keys):
            pipe.hkeys(key)
        pipe.hvals(keys.moved)
        pipe.smembers(keys.cancelled)
        pipe.zrange(keys.overflow, 0, -1)
        for key in streams:
            pipe.xrange(key)
        found = pipe.execute()
    bodies = found[len(found) - len(streams) :]
    entries = {key: [entry.decode() for entry, _ in rows] for key, rows in zip(streams, bodies, strict=True)}
    return _Found(entries, *found[: len(found) - len(streams)])


def _now(raw: Any, keys: QueueKeys) -> int:
    """The server's clock; of a cluster, that of the node that serves the queue."""
    where = {"target_nodes": raw.get_node_from_key(keys.meta)} if hasattr(raw, "get_node_from_key") else {}
    seconds, micros = raw.time(**where)
    return int(seconds) * 1000 + int(micros) // 1000


def _overlooked(found: _Found, now: int) -> list[str]:
    """What is in a bucket of a timed index of which `due` does not say that anything comes due so soon.

    Buckets that are due may stand in `due` as they have their turns.
    """
    heads, overlooked = _members(found.due), []
    for kind, rows in (("l", found.leases), ("d", found.delayed)):
        for member, score in _members(rows).items():
            bucket, at = divmod(score, SPAN)
            if bucket and heads.get(f"{kind}{bucket:.0f}", math.inf) > max(at, now):
                overlooked.append(member)
    return overlooked


def _members(rows: list[Any]) -> dict[str, float]:
    """A sorted set without its sentinel."""
    return {member.decode(errors="surrogateescape"): score for member, score in rows if member}


def _held(member: bytes) -> list[str]:
    """The handles in a member of the overflow: `length:key:<letter>n,n,...:streams:place:ms`."""
    size, rest = member.split(b":", 1)
    numbers, _, place, ms = rest[int(size) + 1 :].decode().split(":")
    letter, numbers = numbers[0], numbers[1:]
    assert ord(letter) - 64 == len(numbers.split(",")[0])
    assert sorted(map(int, numbers.split(","))) == list(map(int, numbers.split(",")))
    return [f"{place.rstrip('!')}:{ms}-{number}" for number in numbers.split(",")]


def _order(entry: str) -> tuple[int, int]:
    ms, n = entry.split("-")
    return int(ms), int(n)
