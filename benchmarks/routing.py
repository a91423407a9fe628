"""routing: the router's trie beside paho's `MQTTMatcher` and a dict trie under a lock.

Contenders run in rounds, each in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.report import Table
from benchmarks.settings import Place
from benchmarks.topics.sizes import sizes
from benchmarks.topics.threads import threads


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    counts: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    rounds: int = 3
    lookups: int = 50_000
    each: int = 1000


QUICK = Size(counts=(10_000,), lookups=10_000)


def run(place: Place) -> list[Table]:
    """All tables, by the settings of a whole run or of a quick one."""
    return tables(QUICK if place.settings.messages < 5000 else Size())


def tables(size: Size) -> list[Table]:
    """One thread, by the number of bindings; then many threads."""
    return [*sizes(size.counts, size.rounds, size.lookups), *threads(size.rounds, size.each)]
