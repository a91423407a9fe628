"""Tables in real time: the rates that are reached, and how late a timer is (target W7)."""

from __future__ import annotations

from benchmarks.report import Table, Target
from benchmarks.timers.process import in_process
from benchmarks.timers.realtime import LIVE
from benchmarks.timers.rounds import Rounds, Size, middle, place, rounds_of
from benchmarks.timers.workload import MODES


def rates(size: Size) -> list[Table]:
    """Real time, rising rates."""
    tables = []
    for mode in MODES:
        found: Rounds = {name: [] for name in LIVE}
        for rate in size.rates:

            def measure(name: str, mode: str = mode, rate: int = rate) -> dict[str, float]:
                told: dict[str, float] = in_process("benchmarks.timers.realtime", name, mode, rate, size.seconds)
                return told

            runs = rounds_of(min(3, size.rounds), LIVE, measure)
            for name, own in found.items():
                own.append({"target": rate, **{field: middle(runs, field, name) for field in runs[name][0]}})
        rows = []
        for at, rate in enumerate(size.rates):
            own = [found[name][at] for name in LIVE]
            rows.append(
                (f"{rate:,}", *(f"{each['rate']:,.0f}, {each['cpu']:.0%}, {each['peak']:.0f} MB" for each in own))
            )
        title = f"Real time, {mode} rate of timeouts: requests a second, CPU, memory, by the rate asked for"
        context = f"median of {min(3, size.rounds)} rounds of {size.seconds:g} s, one process each; {place()}"
        tables.append(Table(f"timing-rates-{mode}", title, context, ("asked for", *LIVE), rows, [], {"found": found}))
    return tables


def lateness(size: Size) -> list[Table]:
    """The rest of W7: a thread, real time."""
    told = in_process("benchmarks.timers.realtime", "lateness", size.late, size.seconds)
    late = [f"{told[name]:.2f} ms" for name in ("p50", "p99", "max")]
    row = (f"{size.late:,}", *late, f"{told['early']:.0f}", f"{told['woken']:.0f}")
    columns = ("timers", "late: p50", "p99", "max", "early", "wake-ups when idle")
    targets = [
        Target("W7 late, p99 (a tick and 2 ms)", told["p99"], 3, True, " ms"),
        Target("W7 early", told["early"], 0, True, ""),
        Target("W7 wake-ups when idle", told["woken"], 0, True, ""),
    ]
    context = f"ticks of 1 ms, {size.seconds:g} s; {place()}"
    title = "How late the timer of a thread fires"
    return [Table("timing-lateness", title, context, columns, [row], targets, {"told": told})]
