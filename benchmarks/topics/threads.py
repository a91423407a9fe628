"""Threads that insert and threads that look up, all at once.

In the two charts of the source each thread does 1,000 operations. In CPython that takes less than a thread's time slice
(5 ms), so the threads hardly compete. The test suite that the source's author published repeats its 1,000 literal
topics for as long as it runs: `LONG` does so, and its inserters remove every second time what they inserted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.report import Table, Target
from benchmarks.timers.process import in_process
from benchmarks.timers.rounds import Rounds, middle, place, ratio, rounds_of
from benchmarks.topics.contenders import CONTENDERS, spelled
from benchmarks.topics.workload import make

NAMES = ("shardq", "shardq, lock", "shardq, one lock", "dict trie, one lock", "paho, one lock")
THREADS = (1, 2, 4, 8, 16)
MIXES = {"1:1": 1, "1:3": 3}
SEED, LONG = (1, 0.1), (20, 0.0)
"""How often a thread does its operations, and what share of the patterns has wildcards."""


def measure(name: str, mix: str, threads: str, each: str, times: str, wild: str) -> dict[str, float]:
    """The wall time of the whole work, as a rate."""
    inserters = max(1, int(threads) // (1 + MIXES[mix]))
    lookers = max(1, int(threads) - inserters)
    patterns, topics = make(inserters * int(each), float(wild), lookers * int(each))
    patterns, topics = [spelled(name, it) for it in patterns], [spelled(name, it) for it in topics]
    trie = CONTENDERS[name]()
    gate = threading.Barrier(inserters + lookers + 1)
    share = int(each)

    def insert(mine: list[str]) -> None:
        gate.wait()
        for run in range(int(times)):
            act = trie.remove if run % 2 else trie.insert
            for pattern in mine:
                act(pattern, "q")

    def look(mine: list[str]) -> None:
        gate.wait()
        for _ in range(int(times)):
            for topic in mine:
                trie.lookup(topic)

    tasks: list[tuple[Callable[[list[str]], None], list[str]]] = []
    tasks += [(insert, patterns[at : at + share]) for at in range(0, len(patterns), share)]
    tasks += [(look, topics[at : at + share]) for at in range(0, len(topics), share)]
    running = [threading.Thread(target=task, args=(mine,)) for task, mine in tasks]
    for thread in running:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in running:
        thread.join()
    taken = time.perf_counter() - start
    return {"rate": (len(patterns) + len(topics)) * int(times) / taken / 1e3, "ms": taken * 1e3}


def threads(rounds: int, each: int) -> list[Table]:
    """A table for each mix, as in the seed and repeated."""
    return [_table(mix, how, rounds, each) for how in (SEED, LONG) for mix in MIXES]


def _round(mix: str, count: int, how: tuple[int, float], rounds: int, each: int) -> Rounds:
    module = "benchmarks.topics.threads"
    return rounds_of(rounds, NAMES, lambda name: in_process(module, name, mix, count, each, *how))


def _table(mix: str, how: tuple[int, float], rounds: int, each: int) -> Table:
    counts = (THREADS[1], THREADS[-1]) if how is LONG else THREADS
    found = {count: _round(mix, count, how, rounds, each) for count in counts}
    rows = [(name, *(f"{middle(found[count], 'rate', name):,.0f}" for count in counts)) for name in NAMES]
    name = f"routing-threads-{mix.replace(':', '-')}" + ("-long" if how is LONG else "")
    did = f"{each:,} operations" + (f", {how[0]} times over," if how is LONG else "")
    context = f"{did} per thread, {how[1]:.0%} of the patterns with wildcards, {rounds} rounds; "
    context += f"wall time, thousand operations/s; {place()}"
    columns = ("insert:lookup " + mix, *(f"{count} threads" for count in counts))
    title = f"routing: {mix} inserts to lookups at once"
    data = {"found": {name: {count: middle(found[count], "ms", name) for count in counts} for name in NAMES}}
    return Table(name, title, context, columns, rows, _targets(mix, found) if how is LONG else [], data)


def _targets(mix: str, found: dict[int, Rounds]) -> list[Target]:
    most = found[THREADS[-1]]
    fall = middle(most, "rate", "shardq") / middle(found[2], "rate", "shardq")
    gain = ratio(most, "rate", "shardq, one lock", "shardq")
    return [
        Target(f"R11 {mix}, 16 threads, of one lock", gain, 4 if mix == "1:1" else 1.5),
        Target(f"R11 {mix}, 16 threads, of the rate of 2", fall, 0.6),
    ]
