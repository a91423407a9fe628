"""Tables of CPU time and memory on a virtual clock: targets W1 to W6."""

from __future__ import annotations

from statistics import median

from benchmarks.report import Table, Target, times
from benchmarks.timers.contenders import ASYNCIO, CONTENDERS, FLAT, HEAP, NOTHING, WHEEL, WHEEL_256
from benchmarks.timers.process import in_process
from benchmarks.timers.rounds import Rounds, Size, best, middle, ratio, rounds_of
from benchmarks.timers.workload import MODES


def replay(size: Size) -> list[Table]:
    """W1, W2, half of W6 and of W7: CPU per request."""
    found = {mode: _net(size, mode) for mode in MODES}
    low, high = found["low"], found["high"]
    rows = []
    for name in [name for name in CONTENDERS if name != NOTHING]:
        cells = [name]
        for each in found.values():
            cells += [f"{best(each, 'us', name):.2f} ({middle(each, 'us', name):.2f}) µs"]
            cells += [times(ratio(each, "us", name, other)) for other in (ASYNCIO, HEAP)]
        rows.append(tuple(cells))
    each_mode = [f"{mode}{what}" for mode in MODES for what in (": best (median)", ", asyncio /", ", heapq + Lock /")]
    fullest = max(each["queue"] / each["most"] for mode in found.values() for each in mode[WHEEL])
    targets = [
        Target("W1 asyncio's CPU, low, against wheel 20", ratio(low, "us", WHEEL, ASYNCIO), 4),
        Target("W1 heapq + Lock's CPU, low, against wheel 20", ratio(low, "us", WHEEL, HEAP), 1.5),
        Target("W2 asyncio's CPU, high, against wheel 20", ratio(high, "us", WHEEL, ASYNCIO), 5),
        Target("W2 heapq + Lock's CPU, high, against wheel 20", ratio(high, "us", WHEEL, HEAP), 1.3),
        Target("W6 wheel 20's CPU, low, against a dict of ticks", ratio(low, "us", FLAT, WHEEL), 2, True),
        Target("W6 wheel 20's CPU, high, against a dict of ticks", ratio(high, "us", FLAT, WHEEL), 2, True),
        Target("W7 buckets in the delay queue of levels x size", fullest, 1, True),
    ]
    title = f"A request with a timeout: CPU time at {size.rate:,.0f} a second"
    return [Table("timing-replay", title, size.described(), ("timer", *each_mode), rows, targets, found)]


def _net(size: Size, mode: str) -> Rounds:
    """Without the driver's share."""

    def measure(name: str) -> dict[str, float]:
        found: dict[str, float] = in_process("benchmarks.timers.replay", name, mode, size.requests, size.rate)
        return found

    found = rounds_of(size.rounds, list(CONTENDERS), measure)
    driver = middle(found, "us", NOTHING)
    return {
        name: [{**each, "us": each["us"] - driver} for each in own] for name, own in found.items() if name != NOTHING
    }


def phases(size: Size) -> list[Table]:
    """W3, W4, W5 and the other half of W6: a million at once."""
    names = [name for name in CONTENDERS if name != NOTHING]
    few = max(100, size.requests // 100)
    asked = {"constant": size.requests, "mixed": size.requests, "few": few, "many": size.requests}
    kinds = {"few": "pairs", "many": "pairs"}

    def measure(name: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for what, number in asked.items():
            told = in_process("benchmarks.timers.phases", name, kinds.get(what, what), number)
            found |= {f"{what}-{field}": value for field, value in told.items()}
        return found

    found = rounds_of(min(3, size.rounds), names, measure)
    columns = (
        "timer", f"start, stop: {few:,} pending", f"{size.requests:,}", "bytes, 10 s", "1 ms to 10 s",
        "freed by cancelling 92 %", "running the rest",
    )  # fmt: skip
    rows = []
    for name in names:
        own = {field: middle(found, field, name) for field in found[name][0]}
        cells = [f"{own['few-ns']:,.0f} ns", f"{own['many-ns']:,.0f} ns", f"{own['constant-bytes']:.0f}"]
        cells += [f"{own['mixed-bytes']:.0f}", f"{own['mixed-freed']:.1%}", f"{own['mixed-expire']:.2f} s"]
        rows.append((name, *cells))
    worst = max(median(each["many-ns"] / each["few-ns"] for each in found[name]) for name in (WHEEL, WHEEL_256))
    targets = [
        Target("W3 asyncio's start and stop beside all, against wheel 20", ratio(found, "many-ns", WHEEL, ASYNCIO), 5),
        Target("W3 heapq + Lock's, against wheel 20", ratio(found, "many-ns", WHEEL, HEAP), 2.5),
        Target("W3 beside all, against beside a hundredth of them", worst, 1.5, True),
        Target("W4 bytes against asyncio's, one timeout", ratio(found, "constant-bytes", ASYNCIO, WHEEL), 0.35, True),
        Target("W4 bytes against asyncio's, mixed", ratio(found, "mixed-bytes", ASYNCIO, WHEEL), 0.35, True),
        Target("W5 memory blocks freed, of the 92 % cancelled", middle(found, "mixed-freed", WHEEL) / 0.92, 0.9),
        Target("W5 heapq + Lock's CPU to run the rest, mixed", ratio(found, "mixed-expire", WHEEL, HEAP), 10),
        Target("W6 bytes of a dict of ticks, mixed", ratio(found, "mixed-bytes", WHEEL, FLAT), 1.3),
    ]  # fmt: skip
    title = "Many requests at once"
    return [Table("timing-phases", title, size.described(), columns, rows, targets, dict(found))]
