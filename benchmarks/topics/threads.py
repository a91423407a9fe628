"""The seed's two charts: threads that insert and threads that look up, all at once, 1,000 times each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.report import Table, Target
from benchmarks.timers.process import in_process
from benchmarks.timers.rounds import Rounds, middle, place, ratio, rounds_of
from benchmarks.topics.contenders import CONTENDERS, spelled
from benchmarks.topics.workload import make

NAMES = ("shardq", "shardq, cereggii", "shardq, one lock", "dict trie, one lock", "paho, one lock")
THREADS = (1, 2, 4, 8, 16)
MIXES = {"1:1": 1, "1:3": 3}


def measure(name: str, mix: str, threads: str, each: str) -> dict[str, float]:
    """The wall time of the whole work, as a rate."""
    inserters = max(1, int(threads) // (1 + MIXES[mix]))
    lookers = max(1, int(threads) - inserters)
    patterns, topics = make(inserters * int(each), 0.1, lookers * int(each))
    patterns, topics = [spelled(name, it) for it in patterns], [spelled(name, it) for it in topics]
    trie = CONTENDERS[name]()
    gate = threading.Barrier(inserters + lookers + 1)
    share = int(each)

    def insert(mine: list[str]) -> None:
        gate.wait()
        for pattern in mine:
            trie.insert(pattern, "q")

    def look(mine: list[str]) -> None:
        gate.wait()
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
    return {"rate": (len(patterns) + len(topics)) / taken / 1e3, "ms": taken * 1e3}


def threads(rounds: int, each: int) -> list[Table]:
    """A table for each mix."""
    return [_table(mix, rounds, each) for mix in MIXES]


def _round(mix: str, count: int, rounds: int, each: int) -> Rounds:
    module = "benchmarks.topics.threads"
    return rounds_of(rounds, NAMES, lambda name: in_process(module, name, mix, count, each))


def _table(mix: str, rounds: int, each: int) -> Table:
    found = {count: _round(mix, count, rounds, each) for count in THREADS}
    rows = [(name, *(f"{middle(found[count], 'rate', name):,.0f}" for count in THREADS)) for name in NAMES]
    most = found[THREADS[-1]]
    fall = middle(most, "rate", "shardq") / middle(found[2], "rate", "shardq")
    targets = [
        Target(
            f"R11 {mix}, 16 threads, of one lock",
            ratio(most, "rate", "shardq, one lock", "shardq"),
            4 if mix == "1:1" else 1.5,
        )
    ]
    targets.append(Target(f"R11 {mix}, 16 threads, of the rate of 2", fall, 0.6))
    context = f"{each:,} operations per thread, {rounds} rounds; wall time, thousand operations/s; {place()}"
    columns = ("insert:lookup " + mix, *(f"{count} threads" for count in THREADS))
    title = f"routing: {mix} inserts to lookups at once"
    data = {"found": {name: {count: middle(found[count], "ms", name) for count in THREADS} for name in NAMES}}
    return Table(f"routing-threads-{mix.replace(':', '-')}", title, context, columns, rows, targets, data)
