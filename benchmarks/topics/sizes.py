"""The contenders by number of bindings."""

from __future__ import annotations

from benchmarks.report import Table, Target
from benchmarks.rounds import middle, ratio
from benchmarks.settings import machine
from benchmarks.timers.process import in_process
from benchmarks.timers.size import Rounds, Size

NAMES = ("paho", "dict trie, one lock", "shardq", "shardq, no roll-up", "shardq, cached", "shardq, lock")
FEWER = ("paho", "shardq", "shardq, cached", "shardq, lock")  # of a million: those that targets are about
COLUMNS = (
    "", "insert k/s", "lookup k/s", "Zipf k/s", "remove k/s", "p50 µs", "p99 µs", "B/binding", "GC objects",
    "worst GC ms", "snapshot µs",
)  # fmt: skip
FIELDS = ("insert", "lookup", "zipf", "remove", "p50", "p99", "bytes", "objects", "pause", "snapshot")


def sizes(counts: tuple[int, ...], rounds: int, lookups: int) -> list[Table]:
    """A table for each size, one of them with wildcards in all patterns."""
    tables = [_table(count, 0.1, rounds, lookups, NAMES if count < 1_000_000 else FEWER) for count in counts]
    return [*tables, _table(counts[-1], 1.0, max(1, rounds - 2), lookups, ("paho", "shardq", "shardq, no roll-up"))]


def _table(count: int, share: float, rounds: int, lookups: int, names: tuple[str, ...] = NAMES) -> Table:
    found = Size(rounds=rounds).take(
        names, lambda name: in_process("benchmarks.topics.one", name, count, share, lookups)
    )
    rows = [(name, *(_shown(found, field, name) for field in FIELDS)) for name in names]
    context = f"{count:,} patterns, {share:.0%} with wildcards, {lookups:,} lookups, {rounds} rounds; {machine()}"
    targets = _wild_targets(found) if share == 1 else _targets(found, count)
    title = "routing: one thread, CPU time"
    return Table(f"routing-{count}-{share:.0%}".rstrip("%"), title, context, COLUMNS, rows, targets, {"found": found})


def _shown(found: Rounds, field: str, name: str) -> str:
    if field not in found[name][0]:
        return "-"
    value = middle(found[name], field)
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if field == "objects" else f"{value:.1f}"


def _targets(found: Rounds, count: int) -> list[Target]:
    def over(field: str, name: str = "shardq") -> float:
        return ratio(found[name], found["paho"], field)

    targets = [
        Target("R3 insert, of paho's rate", over("insert"), 2.0),
        Target("R4 lookup, of paho's rate", over("lookup"), 1.3),
        Target("R5 cached lookup (Zipf), of paho's rate", over("zipf", "shardq, cached"), 10),
        Target("R6 remove, of paho's rate", over("remove"), 1.0),
        Target("R6 nodes left after removing all, of those before", middle(found["shardq"], "left"), 0.01, most=True),
        Target(
            "R7 objects that the garbage collector knows, per binding",
            middle(found["shardq"], "objects"),
            0.3,
            most=True,
        ),
        Target("R8 snapshot, of 10 µs", middle(found["shardq"], "snapshot") / 10, 1, most=True),
    ]
    if count >= 1_000_000:
        targets.append(Target("R1 memory, of paho's", over("bytes"), 0.2, most=True))
        targets.append(Target("R7 worst pause, of paho's", over("pause"), 0.1, most=True))
    return targets


def _wild_targets(found: Rounds) -> list[Target]:
    return [Target("R2 memory, of paho's", ratio(found["shardq"], found["paho"], "bytes"), 0.6, most=True)]
