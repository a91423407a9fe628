"""What really happened, from what every process logged; and what of it must not have. Pure functions, O(n log n).

A log is JSON lines, each written whole by one system call, so that a process that is killed leaves no half event.
Times are seconds of CLOCK_MONOTONIC, which all processes of one machine share. Events by their field `e`:

try        values that a producer is about to write
wrote      ids that it got for them, in the same order
got        one delivery: asked for at `asked`, in hand at `at`, believed in until `until`, over at `ends` for certain
extended   the lease was moved: new `until` and `ends`
settling   about to be acked or nacked (`verb`), at `at`
settled    how that ended (`ok`), answered at `at`

A delivery is known by its consumer and a number, `by` and `n`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]

SLACK = 0.002  # the server counts whole milliseconds, and a lease's first and last may both be cut


@dataclass(slots=True)
class Lease:
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

    @property
    def place(self) -> str:
        """The stream, or where else the body lies."""
        return self.id.split("-", 2)[2]

    @property
    def number(self) -> int:
        """The message's number: within one stream, the order of the writes."""
        return int(self.id.split("-")[1])


@dataclass(slots=True)
class History:
    """Everything that was logged. `ids` are those of the values whose write was answered."""

    tried: set[str] = field(default_factory=set)
    ids: dict[str, list[str]] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)


def load(folder: Path) -> History:
    """The history in all logs of a folder."""
    return history(event for path in sorted(folder.glob("*.jsonl")) for event in _events(path))


def _events(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def history(events: Iterable[Event]) -> History:
    """Put events together; those of one process come in its order, processes in any."""
    found = History()
    leases: dict[tuple[str, int], Lease] = {}
    for event in events:
        match event["e"]:
            case "try":
                found.tried.update(event["values"])
            case "wrote":
                for value, message_id in zip(event["values"], event["ids"], strict=True):
                    found.ids.setdefault(value, []).append(message_id)
            case "got":
                known = ("id", "value", "count", "asked", "at", "until", "ends", "batch")
                leases[event["by"], event["n"]] = Lease(**{name: event[name] for name in known})
            case "extended":
                lease = leases[event["by"], event["n"]]
                lease.until, lease.ends = event["until"], event["ends"]
            case "settling":
                lease = leases[event["by"], event["n"]]
                lease.settling, lease.verb = event["at"], event["verb"]
            case "settled":
                leases[event["by"], event["n"]].ok = event["ok"]
    found.leases = list(leases.values())
    return found


def verdict(found: History) -> dict[str, list[str]]:
    """Every broken promise by name; empty when all were kept."""
    checks = {
        "lost": lost(found),
        "unexpected": unexpected(found),
        "doubled": doubled(found),
        "acked twice": acked_twice(found),
        "two leases at one time": overlapping(found),
        "late ack accepted": late_acks(found),
        "out of order": out_of_order(found),
    }
    return {name: sorted(broken) for name, broken in checks.items() if broken}


def lost(found: History) -> list[str]:
    """Values whose write was answered and that nobody acked, though all is drained."""
    acked = {lease.value for lease in found.leases if lease.verb == "ack" and lease.ok is not False}
    return [value for value in found.ids if value not in acked]


def unexpected(found: History) -> list[str]:
    """Values that came out though nobody wrote them, or under another id than their writer was given."""
    return [
        f"{lease.value} as {lease.id}"
        for lease in found.leases
        if lease.value not in found.tried or lease.id not in found.ids.get(lease.value, [lease.id])
    ]


def doubled(found: History) -> list[str]:
    """Values that were stored more than once: delivered under two ids."""
    seen: dict[str, str] = {}
    return [lease.value for lease in found.leases if seen.setdefault(lease.value, lease.id) != lease.id]


def acked_twice(found: History) -> list[str]:
    """Ids with more than one ack that was accepted."""
    seen: set[str] = set()
    twice = []
    for lease in found.leases:
        if lease.verb == "ack" and lease.ok:
            if lease.id in seen:
                twice.append(lease.id)
            seen.add(lease.id)
    return twice


def overlapping(found: History) -> list[str]:
    """Ids that two consumers could believe in at one time: from the reply until it was settled or had to be dropped."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for lease in found.leases:
        end = lease.until if lease.settling is None else min(lease.until, lease.settling)
        if end > lease.at:  # one that was over before it was in hand is no lease
            spans.setdefault(lease.id, []).append((lease.at, end))
    broken = []
    for message_id, held in spans.items():
        held.sort()
        for (_, end), (begin, _) in pairwise(held):
            if begin < end:
                broken.append(f"{message_id} for {(end - begin) * 1000:.1f} ms")
    return broken


def late_acks(found: History) -> list[str]:
    """Ids whose ack was accepted although it was sent when the lease had ended for certain."""
    return [
        f"{lease.id} by {(lease.settling - lease.ends) * 1000:.1f} ms"
        for lease in found.leases
        if lease.ok and lease.settling is not None and lease.settling > lease.ends + SLACK
    ]


def out_of_order(found: History) -> list[str]:
    """First deliveries of one stream whose reply came before a lower one of it was even asked for.

    Two reads at one time may be served in either order; within one read, order is order.
    """
    streams: dict[str, list[Lease]] = {}
    for lease in found.leases:
        if lease.count == 1 and lease.place.isdigit():
            streams.setdefault(lease.place, []).append(lease)
    return [each for leases in streams.values() for each in _inversions(leases)]


def _inversions(leases: list[Lease]) -> Iterator[str]:
    """Sweep over the reads by when they were asked for, with the highest number that was in hand before."""
    answered = sorted(leases, key=lambda lease: lease.at)
    highest, passed = -1, 0
    for lease in sorted(leases, key=lambda lease: (lease.asked, lease.batch)):
        while passed < len(answered) and answered[passed].at < lease.asked:
            highest = max(highest, answered[passed].number)
            passed += 1
        if lease.number < highest:
            yield f"{lease.id} after number {highest}"
    last: dict[tuple[float, float], int] = {}
    for lease in sorted(leases, key=lambda lease: (lease.asked, lease.at, lease.batch)):
        if last.get((lease.asked, lease.at), -1) > lease.number:
            yield f"{lease.id} within one read"
        last[lease.asked, lease.at] = lease.number
