"""Threads that insert and threads that look up, all at once.

Each repeats its 1,000 literal topics, as the test suite of the trie's author does; its inserters remove every second
time what they inserted. Once would take less than a thread's time slice (5 ms), so the threads would hardly compete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.report import Table, Target
from benchmarks.rounds import middle, ratio
from benchmarks.settings import machine
from benchmarks.timers.process import in_process
from benchmarks.timers.size import Rounds, Size
from benchmarks.topics.contenders import CONTENDERS, spelled
from benchmarks.topics.workload import make

NAMES = ("shardq", "shardq, lock", "shardq, one lock", "dict trie, one lock", "paho, one lock")
THREADS = (2, 16)
MIXES = {"1:1": 1, "1:3": 3}
TIMES = 20
"""How often a thread does its operations."""


def measure(name: str, mix: str, threads: str, each: str, times: str) -> dict[str, float]:
    """The wall time of the whole work, as a rate."""
    inserters = max(1, int(threads) // (1 + MIXES[mix]))
    lookers = max(1, int(threads) - inserters)
    patterns, topics = make(inserters * int(each), 0.0, lookers * int(each))
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
    """A table for each mix."""
    return [_table(mix, rounds, each) for mix in MIXES]


def _round(mix: str, count: int, rounds: int, each: int) -> Rounds:
    module = "benchmarks.topics.threads"
    return Size(rounds=rounds).take(NAMES, lambda name: in_process(module, name, mix, count, each, TIMES))


def _table(mix: str, rounds: int, each: int) -> Table:
    found = {count: _round(mix, count, rounds, each) for count in THREADS}
    rows = [(name, *(_rate(found[count][name]) for count in THREADS)) for name in NAMES]
    context = f"{each:,} operations, {TIMES} times over, per thread, {rounds} rounds; "
    context += f"wall time, thousand operations/s; {machine()}"
    columns = ("insert:lookup " + mix, *(f"{count} threads" for count in THREADS))
    title = f"routing: {mix} inserts to lookups at once"
    data = {str(count): each for count, each in found.items()}
    return Table(f"routing-threads-{mix.replace(':', '-')}", title, context, columns, rows, _targets(mix, found), data)


def _rate(own: list[dict[str, float]]) -> str:
    """The median, and the slowest and the fastest round."""
    rates = [run["rate"] for run in own]
    return f"{middle(own, 'rate'):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def _targets(mix: str, found: dict[int, Rounds]) -> list[Target]:
    most = found[THREADS[-1]]
    fall = middle(most["shardq"], "rate") / middle(found[2]["shardq"], "rate")
    gain = ratio(most["shardq"], most["shardq, one lock"], "rate")
    return [
        Target(f"R11 {mix}, 16 threads, of one lock", gain, 4 if mix == "1:1" else 1.5),
        Target(f"R11 {mix}, 16 threads, of the rate of 2", fall, 0.6),
    ]
