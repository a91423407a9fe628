"""Count a queue by reading its raw keys, message by message: what it says of itself must be equal to it.

lua/ says what the keys hold.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from shardq.protocol.bodies import FROM_OVERFLOW, body_of, message_id, text_or_bytes
from shardq.protocol.ids import with_partition
from shardq.protocol.keys import QueueKeys

IDLE = 1001 * 2**43
_ENTRY = re.compile(rb"\d+-\d+")
_APART = re.compile(rb"\w+=")  # of a body without its payload


@dataclass
class Account:
    """What the state says of a shard key (or parent)."""

    taken: int = 0
    flight: int = 0
    behind: int = 0
    returned: int = 0
    delayed: int = 0
    listed: int = 0
    counted: int = 0
    limits: bytes = b"-"
    queue: bytes = b"-"

    @property
    def heavy(self) -> tuple[str, int]:
        """Under which name it counts while it waits for its turn, and how much."""
        cap, _, _, _, _, weight = self.limits.decode().split(",")[:6] if self.limits != b"-" else (*5 * [""], "1")
        return (cap.removeprefix("="), 1) if weight == "1" and cap[:1] == "=" else ("", int(weight) - 1)


@dataclass
class Child:
    """What the state says of the child of a parent. `left` is a place that a write may not have taken away."""

    behind: int = 0
    flight: int = 0
    place: bytes = b"-"
    left: bytes = b"-"


@dataclass
class Census:
    """Every message of a queue, by where it is, and the accounts. A handle is `place:entry id`."""

    new: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    leased: dict[str, float] = field(default_factory=dict)  # handle: deadline in ms
    delayed: dict[str, float] = field(default_factory=dict)  # handle: due time in ms
    held: set[str] = field(default_factory=set)  # in an overflow
    bodies: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)  # of which the payload is to lie by itself
    payloads: set[str] = field(default_factory=set)  # that lie by themselves
    cancelled: set[str] = field(default_factory=set)  # while in flight
    doubled: list[str] = field(default_factory=list)  # leased or held twice
    lens: dict[int, int] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)  # handles of which a last error is remembered
    per_stream: dict[int, int] = field(default_factory=dict)
    said: dict[bytes, Account] = field(default_factory=dict)
    counted_of: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    children: dict[bytes, Child] = field(default_factory=dict)
    places: set[tuple[bytes, bytes]] = field(default_factory=set)  # of children: a place, and who stands there
    counted_of_children: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    counters: dict[str, int] = field(default_factory=dict)
    heavy: Counter[str] = field(default_factory=Counter)
    turns: dict[bytes, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # the ids of messages outside of the streams, by handle
    now: int = 0
    dead: int = 0
    parts: tuple[Census, ...] = ()  # of a queue with partitions: the census of each

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

    def id_of(self, handle: str) -> str:
        """The id of a message: one in a stream is named by where it is."""
        if handle in self.names:
            return self.names[handle]
        place, _, entry = handle.partition(":")
        entry, at, number = entry.partition("@")
        return f"{entry}-{place}{at}{number}"

    def problems(self) -> list[str]:
        """What contradicts itself; nothing in a sound queue."""
        if self.parts:
            return [f"partition {number}: {each}" for number, part in enumerate(self.parts) for each in part.problems()]
        return [
            *self._misplaced(),
            *self._miscounted(),
            *(f"remembered, but gone: {handle}" for handle in self.errors - self.messages),
            *(f"a payload without a message, or none: {handle}" for handle in self.apart ^ self.payloads),
            *self.wrong_accounts(),
        ]

    def wrong_accounts(self) -> list[str]:
        """Where the accounts differ from a full count; nothing in a sound queue."""
        if self.parts:
            return [each for part in self.parts for each in part.wrong_accounts()]
        return [*self._wrong_accounts(), *self._wrong_children(), *self._wrong_counters()]

    def _misplaced(self) -> Iterator[str]:
        yield from (f"leased or held twice: {handle}" for handle in self.doubled)
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

    def _wrong_accounts(self) -> Iterator[str]:
        for name in {*self.said, *self.counted_of}:
            said, true = self.said.get(name, Account()), self.counted_of[name]
            for what in ("taken", "flight", "behind", "returned", "delayed"):
                if getattr(said, what) != true[what]:
                    yield f"account {name!r} says {what}={getattr(said, what)}, there are {true[what]}"
            place = self.turns.get(name)
            if (said.listed == 1) != (place is not None and place < IDLE):
                yield f"account {name!r} says listed={said.listed}, its place in turns is {place}"

    def _wrong_children(self) -> Iterator[str]:
        for name in {*self.children, *self.counted_of_children}:
            said, true = self.children.get(name, Child()), self.counted_of_children[name]
            if (said.behind, said.flight) != (true["behind"], true["flight"]):
                yield f"child {name!r} says {said}, there are {dict(true)}"
            stands = said.place != b"-" and int(said.place) < IDLE
            if stands != (said.behind > 0) or (said.place == b"-" and said.behind + said.flight == 0):
                yield f"child {name!r} has a wrong place: {said}"
        wanted = {(place, name) for name, each in self.children.items() for place in (each.place, each.left)}
        if {each for each in wanted if each[0] != b"-"} != self.places:
            yield f"the order of children is {self.places}, not {wanted}"

    def _wrong_counters(self) -> Iterator[str]:
        waiting = sum(account.behind for account in self.said.values())
        true = {
            "behind": waiting,
            "shared": len(self.new),
            "turns": sum(1 for place in self.turns.values() if place < IDLE),
            "servable": sum(account.counted for account in self.said.values()),
            "cancels": len(self.cancelled),
            "places": len(self.places),
        }
        for name, number in true.items():
            if self.counters[name] != number:
                yield f"the state says {name}={self.counters[name]}, it is {number}"
        heavy = Counter[str]()
        for name, number in (each.heavy for each in self.said.values() if each.listed == 1):
            heavy[name] += number
        if +heavy != self.heavy:
            yield f"the state says that those who wait for a turn are as heavy as {self.heavy}, it is {heavy}"


def _line(text: str) -> dict[str, int]:
    """What the state says of those that wait: the field `line`."""
    _, behind, turns, servable, _, _, cancels = text.split(" ")
    return {"behind": int(behind), "turns": int(turns), "servable": int(servable), "cancels": int(cancels)}


def _places(odd: str) -> int:
    """How many places of children there are, by what is not as usual in the state."""
    return int(_odd(odd, "places") or 0)


def _heavy(odd: str) -> Counter[str]:
    words = [word.rpartition(":") for word in _odd(odd, "heavy").split()]
    return Counter({name: int(number) for name, _, number in words})


def _odd(odd: str, name: str) -> str:
    return next((line.partition("=")[2] for line in odd.split("\n") if line.startswith(f"{name}=")), "")


def take(raw: Any, keys: QueueKeys, legacy: str | None = None) -> Census:
    """Count; nobody else may use the queue meanwhile."""
    meta = raw.hgetall(keys.meta)
    text = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in meta.items()}
    seen = Census(
        now=int(_time(raw, keys)),
        dead=raw.xlen(keys.dead),
        counters={"shared": int(text["shared"]), "places": _places(text["odd"]), **_line(text["line"])},
        heavy=_heavy(text["odd"]),
        turns={name: score for name, score in raw.zrange(keys.turns, 0, -1, withscores=True) if name or score < IDLE},
    )
    parents = text.get("parents") == "1"
    _streams(seen, raw, keys, meta, text, parents)
    bodies = raw.hgetall(keys.bodies)
    for name, body in bodies.items():
        if name[:1] == b"p":
            seen.payloads.add(f"d:{name[1:].decode()}")
        elif name[:1].isdigit():
            seen.apart |= {f"d:{name.decode()}"} if _APART.match(body) else set()
            seen.bodies.add(f"d:{name.decode()}")
            stored = body_of(body)
            seen.names[f"d:{name.decode()}"] = message_id(name.decode(), stored.origin, text_or_bytes(stored.key))
    _indexes(seen, raw, keys, parents)
    _leases(seen, raw, keys, parents)
    _overflows(seen, meta, bodies, parents)
    for name, value in meta.items():
        if name[:2] == b"t:":
            seen.said[name[2:]] = _account(value)
        elif name[:2] == b"c:":
            behind, _, _, _, flight, _, place, left = value.split(b" ")
            seen.children[name[2:]] = Child(int(behind), int(flight), place, left)
    seen.errors = {f"d:{name.decode()}" for name in raw.hkeys(keys.errors) if name}
    seen.cancelled = {member.decode() for member in raw.smembers(keys.cancelled) if member}
    if legacy:
        touched = {*seen.returned, *seen.leased, *seen.delayed}
        entries = {f"l:{entry.decode()}" for entry, _ in raw.xrange(legacy)}
        seen.bodies |= entries & touched
    return seen


def _time(raw: Any, keys: QueueKeys) -> float:
    seconds, micros = raw.eval("return redis.call('TIME')", 1, keys.meta)
    return int(seconds) * 1000 + int(micros) // 1000


def _owner(key: bytes, parents: bool) -> bytes:
    return (key.partition(b"/")[0] or key) if parents else key


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


def _streams(seen: Census, raw: Any, keys: QueueKeys, meta: Any, text: Any, parents: bool) -> None:
    ready = text["ready"]
    seen.ready = {number for number, digit in enumerate(ready) if digit == "1"}
    for number in range(int(text["streams"])):
        key = keys.stream(number)
        seen.lens[number] = int(meta.get(key.encode(), b"0"))
        cursor = _order(text.get(f"h{number}", "0-0"))
        new = 0
        for entry, fields in raw.xrange(key):
            handle = f"{number}:{entry.decode()}"
            seen.bodies.add(handle)
            if _order(entry.decode()) > cursor:
                seen.new.add(handle)
                new += 1
                names = list(fields.items())
                if names and names[0][0] == b"K":
                    seen.counted_of[_owner(names[0][1], parents)]["taken"] += 1
        seen.per_stream[number] = new


def _split(member: bytes) -> tuple[bytes, bytes]:
    size, _, rest = member.partition(b":")
    return rest[: int(size)], rest[int(size) + 1 :]


def _indexes(seen: Census, raw: Any, keys: QueueKeys, parents: bool) -> None:
    for member in raw.zrange(keys.returned, 0, -1):
        if member:
            key, rest = _split(member)
            _, place, entry, _, _ = rest.decode().split(":")
            seen.returned.add(f"{place}:{entry}")
            seen.counted_of[_owner(key, parents)]["behind"] += 1
            if parents:
                seen.counted_of_children[key]["behind"] += 1
            else:
                seen.counted_of[key]["returned"] += 1
    for member in filter(None, raw.zrange(keys.delayed, 0, -1)):
        name, rest = _split(member.removeprefix(b"p"))
        if member[:1] == b"p":
            stands, _, child = rest.partition(b":")
            seen.doubled += [] if _owner(child, parents=True) == name else [f"a place of another's child: {member!r}"]
            seen.places.add((stands, child))
            continue
        due, spot, mark, _ = rest.split(b":", 3)
        seen.delayed[f"{spot.decode()}:{mark.decode()}"] = int(due)
        seen.counted_of[name]["delayed"] += 1


def _leases(seen: Census, raw: Any, keys: QueueKeys, parents: bool) -> None:
    for token, ends in raw.zrange(keys.leases, 0, -1, withscores=True):
        if token:
            where, number, _, _, marks, key = token.split(b":", 5)
            handle = f"{where.decode()}:{number.decode()}"
            seen.doubled += [handle] if handle in seen.leased else []
            seen.leased[handle] = ends
            if not marks.endswith(b"-"):
                seen.counted_of[_owner(key, parents)]["flight"] += 1
                if parents:
                    seen.counted_of_children[key]["flight"] += 1


def _account(value: bytes) -> Account:
    words = value.split(b" ")
    if len(words) == 1:
        both, _, waits, queue = (*value.split(b":"), b"", b"", b"")[:4]
        new, alone = int(waits or 0), int(both) % 1000 == 0
        found = Account(int(both) % 1000, int(both) // 1000, new, listed=int(new > 0 and alone), counted=new)
        return replace(found, queue=queue or b"-")
    taken, flight, behind, returned, delayed, _, _, _, listed, counted, limits, queue = words
    found = Account(int(taken), int(flight), int(behind), int(returned), int(delayed), int(listed), int(counted))
    return replace(found, limits=limits, queue=queue)


def _overflows(seen: Census, meta: Any, bodies: Any, parents: bool) -> None:
    for name, value in meta.items():
        if name[:2] == b"t:" and not parents:
            _overflow(seen, name[2:], _account(value).queue, bodies, None)
        elif name[:2] == b"c:":
            _overflow(seen, name[2:], value.split(b" ")[2], bodies, _owner(name[2:], parents))
    told = {b"m" + name + b"\n" for name in {each[2:] for each in meta if each[:2] in (b"t:", b"c:")}}
    for field_name in bodies:
        if field_name[:1] == b"m" and not any(field_name.startswith(base) for base in told):
            seen.doubled.append(f"a block of nobody: {field_name!r}")


def _overflow(seen: Census, key: bytes, queue: bytes, bodies: Any, parent: bytes | None) -> None:
    if queue == b"-":
        return
    head, offset, tail, _ = map(int, queue.split(b"."))
    for number in range(head, tail + 1):
        text = bodies.get(b"m%b\n%d" % (key, number), b"")[offset if number == head else 0 :]
        while text:
            size, _, rest = text.partition(b":")
            record, text = rest[: int(size)], rest[int(size) :]
            match = _ENTRY.match(record)
            assert match is not None
            entry, handle = match[0].decode(), f"d:{match[0].decode()}"
            mark = record[match.end() :][:1]
            seen.apart |= {handle} if mark == b"=" else set()
            if mark != b"@":
                seen.names[handle] = message_id(entry, FROM_OVERFLOW, text_or_bytes(key))
            seen.doubled += [handle] if handle in seen.held else []
            seen.held.add(handle)
            seen.bodies.add(handle)
            seen.counted_of[key if parent is None else parent]["behind"] += 1
            if parent is not None:
                seen.counted_of_children[key]["behind"] += 1


def take_all(raw: Any, partitions: list[QueueKeys]) -> Census:
    """Count a queue with partitions, one after the other. Handles and ids of a partition end in its number."""
    parts = tuple(take(raw, keys) for keys in partitions)
    whole = Census(now=max(part.now for part in parts), parts=parts)
    for number, part in enumerate(parts):
        _add(whole, part, number)
    return whole


def _add(whole: Census, part: Census, number: int) -> None:
    for name in ("new", "returned", "held", "bodies", "apart", "payloads", "cancelled", "errors"):
        getattr(whole, name).update(with_partition(each, number) for each in getattr(part, name))
    for name in ("leased", "delayed"):
        getattr(whole, name).update({with_partition(each, number): at for each, at in getattr(part, name).items()})
    whole.names |= {with_partition(each, number): with_partition(name, number) for each, name in part.names.items()}
    whole.doubled += [with_partition(each, number) for each in part.doubled]
    whole.counters = dict(Counter(whole.counters) + Counter(part.counters))
    whole.dead += part.dead
    for stream, count in part.lens.items():
        whole.lens[stream] = whole.lens.get(stream, 0) + count
    for stream, count in part.per_stream.items():
        whole.per_stream[stream] = whole.per_stream.get(stream, 0) + count
    whole.ready |= part.ready
    whole.said |= part.said  # a shard key has one home here: nothing is dealt anew
    whole.children |= part.children
    whole.turns |= part.turns
    whole.places |= part.places
    whole.counted_of.update(part.counted_of)
    whole.counted_of_children.update(part.counted_of_children)
