"""The table of the purgatory: targets P1 to P3."""

from __future__ import annotations

from benchmarks.report import Table, Target, times
from benchmarks.timers.process import in_process
from benchmarks.timers.purgatories import OLD, OURS, PRESENT, PURGATORIES
from benchmarks.timers.rounds import Rounds, Size, best, middle, ratio, rounds_of
from benchmarks.timers.workload import MODES


def purgatory(size: Size) -> list[Table]:
    """P1, P2, P3: with 3 keys."""
    found: dict[str, Rounds] = {}
    number = size.requests // 5
    for mode in MODES:

        def measure(name: str, mode: str = mode) -> dict[str, float]:
            # Far beyond saturation the old rule takes a thousand times as long as the others.
            asked = max(100, number // 10) if name == OLD else number
            told: dict[str, float] = in_process("benchmarks.timers.purgatories", name, mode, asked, size.rate, 3)
            return told

        found[mode] = rounds_of(min(3, size.rounds), list(PURGATORIES), measure)
    rows = []
    for name in PURGATORIES:
        cells = [name]
        for each in found.values():
            cells += [
                f"{best(each, 'us', name):.1f} ({middle(each, 'us', name):.1f}) µs",
                times(ratio(each, "us", OURS, name)),
            ]
            cells += [f"{max(one['kept'] for one in each[name]):,.0f}"]
        rows.append(tuple(cells))
    columns = [
        f"{mode}{what}" for mode in MODES for what in (": best (median)", ", / wheel 20", ", completed but held")
    ]
    held = max(one["kept"] for each in found.values() for one in each[OURS])
    low, high = found["low"], found["high"]
    targets = [
        Target("P1 the present rule on asyncio, low", ratio(low, "us", OURS, PRESENT), 1.8),
        Target("P1 the present rule on asyncio, high", ratio(high, "us", OURS, PRESENT), 2.2),
        Target("P2 the rule of 0.8, low", ratio(low, "us", OURS, OLD), 3.5),
        Target("P2 the rule of 0.8, high", ratio(high, "us", OURS, OLD), 18),
        Target("P3 completed operations in watch lists", held, 0, True, ""),
    ]  # fmt: skip
    title = f"The purgatory, 3 keys: CPU time per request at {size.rate:,.0f} a second"
    return [Table("timing-purgatory", title, size.described(), ("purgatory", *columns), rows, targets, found)]
