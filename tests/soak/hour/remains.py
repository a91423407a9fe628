"""What is left behind: memory, descriptors and threads of processes, and keys and memory of servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.soak.hour.bounds import MIB, Bounds
from tests.soak.hour.events import Process
from tests.soak.hour.record import Record
from tests.soak.hour.violation import Kind, Violation

SAMPLES: Final = 5
"""How many samples make one value: a single one may be of a moment."""

REST: Final = 2.0
"""How many times as long as its warming a process must live to be judged."""


@dataclass(frozen=True)
class Life:
    """The samples of one process, in order."""

    who: str
    pid: int
    samples: Sequence[Process]

    def value(self, of: Callable[[Process], float], at: float) -> float:
        """The median of the samples that are nearest to a time."""
        near = sorted(self.samples, key=lambda each: abs(each.at - at))[:SAMPLES]
        return median(of(each) for each in near)

    def __str__(self) -> str:
        return f"{self.who} (process {self.pid})"

    @property
    def span(self) -> float:
        """Seconds."""
        return self.samples[-1].at - self.samples[0].at


def lives(record: Record) -> list[Life]:
    """Each process, by when it began."""
    of = defaultdict[tuple[str, int], list[Process]](list)
    for each in record.processes:
        of[each.who, each.pid].append(each)
    found = [Life(who, pid, sorted(some, key=lambda each: each.at)) for (who, pid), some in of.items()]
    return sorted(found, key=lambda life: life.samples[0].at)


def warming(record: Record, bounds: Bounds) -> float:
    """Seconds after which a process has what it needs."""
    times = [each.at for each in record.processes]
    return min(bounds.warm, (max(times) - min(times)) / 6) if times else bounds.warm


def left_behind(record: Record, bounds: Bounds) -> Iterator[Violation]:
    """All that grew though it should not."""
    warm, servers = warming(record, bounds), {each.server for each in record.keys}
    for life in lives(record):
        if life.span >= REST * warm and len(life.samples) > 2 * SAMPLES:
            at = life.samples[0].at + warm
            is_server = life.who in servers
            yield from _grown(life, at, bounds.growth, bounds.server_memory if is_server else bounds.memory)
            if not is_server:  # the connections of a server are descriptors of its clients
                yield from _kept(life, at, bounds)
    yield from _keys(record, bounds)


def _grown(life: Life, warm: float, growth: float, floor: int) -> Iterator[Violation]:
    end = life.samples[-1].at
    before, after = (life.value(lambda each: each.rss, at) for at in (warm, end))
    if after > before * growth and after - before > floor:
        yield Violation(
            Kind.MEMORY_GREW,
            f"{life} had {before / MIB:.1f} MiB at {warm:.0f} and {after / MIB:.1f} MiB at {end:.0f}, "
            f"{after / before:.2f} times as much",
        )


def _kept(life: Life, warm: float, bounds: Bounds) -> Iterator[Violation]:
    end = life.samples[-1].at
    for name in ("fds", "threads"):
        first, last = (life.value(lambda each, name=name: getattr(each, name), at) for at in (warm, end))  # type: ignore[misc]
        if last > first * bounds.growth and last - first > bounds.descriptors:
            yield Violation(
                Kind.DESCRIPTORS_LEFT, f"{life} had {first:g} {name} at {warm:.0f}, and {last:g} at {end:.0f}"
            )


def _keys(record: Record, bounds: Bounds) -> Iterator[Violation]:
    """Of all servers together: slots move between them."""
    count, memory = {"begin": 0, "end": 0}, {"begin": 0, "end": 0}
    for each in record.keys:
        count[each.when] += each.count
        memory[each.when] += each.memory
    more = count["end"] - count["begin"]
    if more > bounds.keys:
        servers = ", ".join(f"{each.server} {each.count:,}" for each in record.keys if each.when == "end")
        yield Violation(
            Kind.KEYS_LEFT, f"{count['begin']:,} keys at the beginning, {count['end']:,} at the end: {servers}"
        )
    grown, floor = memory["end"] - memory["begin"], bounds.server_memory * len({each.server for each in record.keys})
    if memory["end"] > memory["begin"] * bounds.growth and grown > floor:
        yield Violation(Kind.MEMORY_GREW, f"the servers had {grown / MIB:.0f} MiB more at the end than before")
