"""What really happened to the messages of a queue, from what every process logged; and what of it must not have.

Pure functions, O(n log n). `hour/events.py` has the format of the logs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from tests.soak.hour.events import (
    MAX_DAMAGES,
    Dropped,
    Event,
    Extended,
    Got,
    Settled,
    Settling,
    Try,
    Wrote,
    files,
    read,
)  # fmt: skip

SLACK: Final = 0.002
"""Seconds: the server counts whole milliseconds, and a lease's first and last may both be cut."""

ENDS: Final = frozenset(("ack", "reject"))
"""Verbs after which a message is not delivered again."""


class HistoryDamaged(Exception):
    """A log is not whole, so it proves nothing."""


class Lease(Struct, gc=False):
    """One delivery and how it ended, as its consumer saw it."""

    id: str
    value: str
    count: int
    asked: float
    at: float
    until: float
    ends: float
    batch: int
    settling: float | None = None
    verb: str = ""
    ok: bool | None = None  # None: the consumer died before it knew
    settled: float = math.inf
    delay: float = 0.0

    @property
    def place(self) -> str:
        """The stream, or where else the body lies; '' of an id that a client made."""
        return self.id.split("-", 2)[2] if self.id.count("-") >= 2 else ""

    @property
    def number(self) -> int:
        """The message's number: within one stream, the order of the writes."""
        return int(self.id.split("-")[1])

    @property
    def has_ended(self) -> bool:
        """Whether its message was done with it, as far as its consumer knew."""
        return self.verb in ENDS and self.ok is not False


@dataclass(slots=True)
class History:
    """Everything that was logged of one queue. Times are by value, of its first write.

    `ids` are those of the values whose write was answered, and `due` is when these could be delivered. `dropped` says
    why a message may end without an ack, by its id.
    """

    tried: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)


class Broken(NamedTuple):
    """A promise that was not kept to a value. If a promotion explains it, it lost what was done in `done`."""

    value: str
    text: str
    done: tuple[float, float]


def load(folder: Path) -> History:
    """The history of the only queue in all logs of a folder."""
    damages: list[str] = []
    found = history((event for path in files(folder) for event in read(path, damages)), damages)
    if damages:
        raise HistoryDamaged("; ".join(damages))
    return found


def history(events: Iterable[Event], damages: list[str] | None = None) -> History:
    """Put the events of one queue together; those of one process come in its order, processes in any."""
    found: dict[str, History] = defaultdict(History)
    gather(events, found, [] if damages is None else damages)
    (only,) = found.values() or [History()]
    return only


def gather(events: Iterable[Event], found: Mapping[str, History], damages: list[str]) -> None:
    """Add events to the histories of their queues, which *found* makes. All events of a delivery are among them.

    One that belongs to no delivery or write is skipped, and named in *damages*.
    """
    leases: dict[tuple[str, int], Lease] = {}
    for event in events:
        try:
            match event:
                case Got():
                    lease = leases[event.by, event.n] = _lease(event)
                    found[event.queue].leases.append(lease)
                case Extended() | Settling() | Settled():
                    _continue(leases[event.by, event.n], event)
                case Try():
                    for value in event.values:
                        found[event.queue].tried.setdefault(value, event.at)
                case Wrote():
                    _answer(found[event.queue], event)
                case Dropped():
                    found[event.queue].dropped[event.id] = event.why
        except (KeyError, ValueError):
            if len(damages) < MAX_DAMAGES:
                damages.append(f"it belongs to nothing: {str(event)[:200]}")


def _lease(event: Got) -> Lease:
    return Lease(event.id, event.value, event.count, event.asked, event.at, event.until, event.ends, event.batch)


def _continue(lease: Lease, event: Extended | Settling | Settled) -> None:
    match event:
        case Extended():
            lease.until, lease.ends = event.until, event.ends
        case Settling():
            lease.settling, lease.verb, lease.delay = event.at, event.verb, event.delay
        case Settled():
            lease.ok, lease.settled = event.ok, event.at


def _answer(found: History, event: Wrote) -> None:
    for value, message_id in zip(event.values, event.ids, strict=True):
        found.ids.setdefault(value, []).append(message_id)
        found.answered.setdefault(value, event.at)
        found.due.setdefault(value, event.at + event.delay)


def verdict(found: History) -> dict[str, list[str]]:
    """Every broken promise by name; empty when all were kept."""
    broken = {name: sorted(each.text for each in check(found)) for name, check in CHECKS.items()}
    return {name: texts for name, texts in broken.items() if texts}


def lost(found: History) -> list[Broken]:
    """Values whose write was answered and that nobody acked, though all is drained."""
    ended = {lease.value for lease in found.leases if lease.has_ended}
    others = {lease.id for lease in found.leases if lease.has_ended} | found.dropped.keys()
    return [
        Broken(value, value, (found.tried.get(value, math.nan), found.answered.get(value, math.nan)))
        for value, ids in found.ids.items()
        if value not in ended and others.isdisjoint(ids)
    ]


def unexpected(found: History) -> list[Broken]:
    """Values that came out though nobody wrote them, or under another id than their writer was given."""
    return [
        Broken(lease.value, f"{lease.value} as {lease.id}", (math.nan, math.nan))
        for lease in found.leases
        if lease.value not in found.tried or lease.id not in (found.ids.get(lease.value) or [lease.id])
    ]


def doubled(found: History) -> list[Broken]:
    """Values that were stored more than once: delivered under two ids."""
    seen: dict[str, str] = {}
    return [
        Broken(lease.value, lease.value, (found.tried.get(lease.value, math.nan), lease.at))
        for lease in found.leases
        if seen.setdefault(lease.value, lease.id) != lease.id
    ]


def acked_twice(found: History) -> list[Broken]:
    """Ids with more than one ack that was accepted."""
    seen: dict[str, Lease] = {}
    twice = []
    for lease in found.leases:
        if lease.verb == "ack" and lease.ok:
            first = min(lease, seen.setdefault(lease.id, lease), key=lambda each: each.settled)
            if seen[lease.id] is not lease:
                twice.append(Broken(lease.value, lease.id, (first.settling or first.at, first.settled)))
                seen[lease.id] = first
    return twice


def came_back(found: History) -> list[Broken]:
    """Messages that were asked for, and delivered, after the answer that they are acked."""
    acked: dict[str, Lease] = {}
    for lease in found.leases:
        if lease.verb == "ack" and lease.ok:
            acked[lease.id] = min(lease, acked.get(lease.id, lease), key=lambda each: each.settled)
    return [
        Broken(
            lease.value,
            f"{lease.id}, {lease.asked - first.settled:.3f} s after",
            (first.settling or first.at, first.settled),
        )
        for lease in found.leases
        if (first := acked.get(lease.id)) and lease.asked > first.settled
    ]


def overlapping(found: History) -> list[Broken]:
    """Ids that two consumers could believe in at one time: from the reply until it was settled or had to be dropped."""
    spans: dict[str, list[tuple[float, float, str]]] = {}
    for lease in found.leases:
        end = lease.until if lease.settling is None else min(lease.until, lease.settling)
        if end > lease.at:  # one that was over before it was in hand is no lease
            spans.setdefault(lease.id, []).append((lease.at, end, lease.value))
    broken = []
    for message_id, held in spans.items():
        held.sort()
        for (before, end, value), (begin, _, _) in pairwise(held):
            if begin < end:
                broken.append(Broken(value, f"{message_id} for {(end - begin) * 1000:.1f} ms", (before, begin)))
    return broken


def late_acks(found: History) -> list[Broken]:
    """Ids whose ack was accepted although it was sent when the lease had ended for certain."""
    return [
        Broken(lease.value, f"{lease.id} by {(lease.settling - lease.ends) * 1000:.1f} ms", (math.nan, math.nan))
        for lease in found.leases
        if lease.ok and lease.settling is not None and lease.settling > lease.ends + SLACK
    ]


def out_of_order(found: History) -> list[Broken]:
    """First deliveries of one stream whose reply came before a lower one of it was even asked for.

    Two reads at one time may be served in either order; within one read, order is order. A dead letter that came back
    is counted from one again, and has no place in the order.
    """
    streams: dict[str, list[Lease]] = {}
    for lease in found.leases:
        if lease.count == 1 and lease.place.isdigit() and lease.id not in found.dropped:
            streams.setdefault(lease.place, []).append(lease)
    return [
        Broken(lease.value, text, (found.tried.get(lease.value, math.nan), lease.at))
        for leases in streams.values()
        for text, lease in _inversions(leases)
    ]


def _inversions(leases: list[Lease]) -> Iterator[tuple[str, Lease]]:
    """Sweep over the reads by when they were asked for, with the highest number that was in hand before."""
    answered = sorted(leases, key=lambda lease: lease.at)
    highest, passed = -1, 0
    for lease in sorted(leases, key=lambda lease: (lease.asked, lease.batch)):
        while passed < len(answered) and answered[passed].at < lease.asked:
            highest = max(highest, answered[passed].number)
            passed += 1
        if lease.number < highest:
            yield f"{lease.id} after number {highest}", lease
    last: dict[tuple[float, float], int] = {}
    for lease in sorted(leases, key=lambda lease: (lease.asked, lease.at, lease.batch)):
        if last.get((lease.asked, lease.at), -1) > lease.number:
            yield f"{lease.id} within one read", lease
        last[lease.asked, lease.at] = lease.number


CHECKS: Final[Mapping[str, Callable[[History], list[Broken]]]] = {
    "lost": lost,
    "unexpected": unexpected,
    "doubled": doubled,
    "acked twice": acked_twice,
    "delivered after its ack": came_back,
    "two leases at one time": overlapping,
    "late ack accepted": late_acks,
    "out of order": out_of_order,
}
