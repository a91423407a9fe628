"""Measures one contender at one size in this process: rates in CPU time, memory, and garbage collector pauses."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.processes import resident
from benchmarks.topics.census import census
from benchmarks.topics.contenders import CONTENDERS, spelled
from benchmarks.topics.workload import make, zipf


def measure(name: str, count: str, share: str, lookups: str) -> dict[str, float]:
    """Build the trie, look topics up, take snapshots, and remove everything."""
    patterns, topics = make(int(count), float(share), int(lookups))
    patterns = [spelled(name, each) for each in patterns]
    topics = [spelled(name, each) for each in topics]
    frequent = zipf(topics[: len(topics) // 4], len(topics))
    values = [f"q{number}" for number in range(16)]
    gc.collect()
    gc.freeze()
    trie = CONTENDERS[name]()
    pauses = Pauses()
    before = resident()
    build = _timed(lambda: _each(trie.insert, patterns, values))
    worst = pauses.stop()
    gc.collect()
    found = {
        "bytes": (resident() - before) / len(patterns),
        "objects": len(gc.get_objects()) / len(patterns),
        "insert": len(patterns) / build / 1e3,
        "pause": worst,
    }
    found["lookup"] = len(topics) / _timed(lambda: _all(trie.lookup, topics)) / 1e3
    _all(trie.lookup, frequent)
    found["zipf"] = len(frequent) / _timed(lambda: _all(trie.lookup, frequent)) / 1e3
    slices = [topics[at : at + 10] for at in range(0, min(len(topics), 10_000), 10)]
    times = sorted(_timed(lambda each=each: _all(trie.lookup, each), time.perf_counter) / 10 for each in slices)  # type: ignore[misc]
    found |= {"p50": times[len(times) // 2] * 1e6, "p99": times[len(times) * 99 // 100] * 1e6}
    if hasattr(trie, "snapshot"):
        found |= _snapshots(trie, patterns[0])
        found["nodes"] = census(trie).nodes
    found["remove"] = len(patterns) / _timed(lambda: _each(trie.remove, patterns, values)) / 1e3
    if hasattr(trie, "snapshot"):
        found["left"] = census(trie).nodes / found["nodes"]
    return found


def _snapshots(trie: Any, pattern: str) -> dict[str, float]:
    taken, after = [], []
    for _ in range(201):
        start = time.perf_counter()
        trie.snapshot()
        taken.append(time.perf_counter() - start)
        start = time.perf_counter()
        trie.insert(pattern, "other")
        after.append(time.perf_counter() - start)
        trie.remove(pattern, "other")
    return {"snapshot": sorted(taken)[100] * 1e6, "after": sorted(after)[100] * 1e6}


class Pauses:
    """The longest run of the garbage collector."""

    def __init__(self) -> None:
        self._start = self._worst = 0.0
        gc.callbacks.append(self._seen)

    def _seen(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._start = now
        else:
            self._worst = max(self._worst, now - self._start)

    def stop(self) -> float:
        """End, and return it in ms."""
        gc.callbacks.remove(self._seen)
        return self._worst * 1e3


def _timed(act: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    act()
    return clock() - start


def _each(act: Callable[[str, str], object], patterns: list[str], values: list[str]) -> None:
    for at, pattern in enumerate(patterns):
        act(pattern, values[at & 15])


def _all(act: Callable[[str], object], topics: Iterable[str]) -> None:
    for topic in topics:
        act(topic)
