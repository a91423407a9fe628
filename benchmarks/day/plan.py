"""What happens in a day, whoever scales: who writes what and when, how long each job takes, and what goes wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

HOUR: Final = 3600.0
TENANTS: Final = 40
JOB: Final = 60.0
"""Seconds that a usual job takes in the middle."""
LIMITED: Final = "limited"
"""The tenant of the first flood, which has a limit."""
RATE: Final = 0.13
"""Messages a second that may be delivered to it."""

Kind = Literal["usual", "due", "limited", "flood", "slow"]


class Arrival(NamedTuple):
    """A message: when it is written, and due; for whom, of what kind; how many seconds its job takes."""

    at: float
    tenant: str
    seconds: float
    kind: Kind
    due: float


class Span(NamedTuple):
    """A part of the day, in seconds from midnight."""

    begin: float
    end: float

    def has(self, at: float) -> bool:
        """Whether a moment lies in it."""
        return self.begin <= at < self.end


@dataclass(frozen=True)
class Plan:
    """A day, or a part of one."""

    length: float
    arrivals: tuple[Arrival, ...]
    paused: Span | None
    """While the whole queue is paused."""
    outage: Span | None
    """While Redis cannot be reached."""
    deploy: float | None
    """When all pods are replaced, a few at a time."""
    events: tuple[tuple[float, str], ...] = ()
    """What a picture names."""


def whole_day(seed: int) -> Plan:
    """Return the day of which docs/autoscaling.md tells."""
    rng = random.Random(f"day {seed}")
    found = [
        *_usual(rng, 0.24),
        *_batch(rng, 0.0, "due", [f"tenant-{at}" for at in range(10)], 300, 6 * HOUR),
        *_batch(rng, 9.5 * HOUR, "limited", [LIMITED], 940),
        *_slow(rng, Span(11 * HOUR, 12.5 * HOUR), 40.0),
        *_batch(rng, 13.5 * HOUR, "flood", ["flood"], 750),
    ]
    return Plan(
        length=24 * HOUR,
        arrivals=tuple(sorted(found)),
        paused=Span(15 * HOUR, 16 * HOUR),
        outage=Span(18.5 * HOUR, 18.5 * HOUR + 300),
        deploy=17.25 * HOUR,
        events=(
            (6 * HOUR, "300 come due"),
            (9.5 * HOUR, "940 of a limited tenant"),
            (11 * HOUR, "a slow tenant"),
            (13.5 * HOUR, "a flood of 750"),
            (15 * HOUR, "paused for an hour"),
            (17.25 * HOUR, "a deploy"),
            (18.5 * HOUR, "Redis away"),
        ),
    )


def level(at: float) -> float:
    """Return how much is written at a time of day, of the most: nothing at night."""
    hour = at / HOUR
    if hour < 6.5 or hour >= 21:
        return 0.0
    return min(1.0, (hour - 6.5) / 2.5, (21 - hour) / 4)


def _usual(rng: random.Random, rate: float) -> Iterator[Arrival]:
    """Yield what tenants write all day, of which few write much."""
    names = [f"tenant-{at}" for at in range(TENANTS)]
    weights = [1 / (at + 2) for at in range(TENANTS)]
    at = 0.0
    while (at := at + rng.expovariate(rate)) < 24 * HOUR:
        if rng.random() < level(at):
            yield Arrival(at, rng.choices(names, weights)[0], job(rng), "usual", at)


def _batch(
    rng: random.Random, at: float, kind: Kind, tenants: list[str], count: int, due: float = 0.0
) -> Iterator[Arrival]:
    """Yield what is written at once."""
    for number in range(count):
        yield Arrival(at, tenants[number % len(tenants)], job(rng), kind, max(at, due))


def _slow(rng: random.Random, span: Span, gap: float) -> Iterator[Arrival]:
    """Yield the jobs of minutes of one tenant."""
    at = span.begin
    while (at := at + rng.expovariate(1 / gap)) < span.end:
        yield Arrival(at, "slow", rng.uniform(180, 600), "slow", at)


def job(rng: random.Random) -> float:
    """Return how many seconds a usual job takes: most of them not much more than half of them do."""
    return JOB * math.exp(rng.gauss(0, 0.5))


def an_hour(seed: int) -> Plan:
    """Return all of it in little, in two hours and a half: for tests."""
    rng = random.Random(f"hour {seed}")
    minute = 60.0
    found = [
        *_batch(rng, 0.0, "due", ["early"], 3, 30 * minute),
        *_batch(rng, 40 * minute, "limited", [LIMITED], 60),
        *_batch(rng, 60 * minute, "flood", ["flood"], 60),
        *_slow(rng, Span(70 * minute, 80 * minute), 100.0),
        *_batch(rng, 112 * minute, "usual", ["tenant-1", "tenant-2"], 20),
        *_batch(rng, 127 * minute, "usual", [f"tenant-{at}" for at in range(20)], 60),
    ]
    return Plan(
        length=2.5 * HOUR,
        arrivals=tuple(sorted(found)),
        paused=Span(105 * minute, 118 * minute),
        outage=Span(128 * minute, 133 * minute),
        deploy=121 * minute,
        events=((30 * minute, "3 come due"), (40 * minute, "a limited tenant"), (128 * minute, "Redis away")),
    )
