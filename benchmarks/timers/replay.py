"""A request with a timeout on a virtual clock, a look each millisecond: what does it cost, beside other timers?"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.report import Table, Target, times
from benchmarks.rounds import middle, ratio
from benchmarks.timers.contenders import ASYNCIO, CONTENDERS, HEAP, NOTHING, WHEEL
from benchmarks.timers.process import in_process
from benchmarks.timers.size import Rounds, Size
from benchmarks.timers.workload import MODES, TIMEOUT, Schedule


class Clock:
    """Time that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def measure(contender: str, mode: str, requests: str, rate: str) -> dict[str, float]:
    """CPU microseconds per request."""
    schedule, clock = Schedule(mode, int(requests), float(rate)), Clock()
    timer = CONTENDERS[contender](clock.monotonic)
    started: list[Any] = [None] * int(requests)
    first = 0
    began = time.process_time()
    for tick, arrivals in enumerate(schedule.arrivals):
        clock.now = tick / 1000
        timer.run_due()
        for done in schedule.completed[tick]:
            started[done].cancel()
            started[done] = None
        for done in schedule.timed_out[tick]:
            started[done] = None
        for number in range(first, first + arrivals):
            started[number] = timer.start(TIMEOUT)
        first += arrivals
    spent = time.process_time() - began
    if contender != NOTHING and not 0.97 * schedule.timeouts <= timer.timeouts <= 1.03 * schedule.timeouts + 10:
        raise AssertionError(f"{contender}: {timer.timeouts} timeouts instead of {schedule.timeouts}")
    timer.close()
    return {"us": spent / int(requests) * 1e6}


def replay(size: Size) -> Table:
    """CPU per request, low and high rate of timeouts."""
    found = {mode: _net(size, mode) for mode in MODES}
    rows = []
    for name in found["low"]:
        cells = [name]
        for each in found.values():
            spent = [run["us"] for run in each[name]]
            cells += [f"{middle(each[name], 'us'):.2f} µs", f"{min(spent):.2f} to {max(spent):.2f}"]
            cells += [times(ratio(each[other], each[name], "us")) for other in (ASYNCIO, HEAP)]
        rows.append(tuple(cells))
    columns = [f"{mode}{what}" for mode in MODES for what in ("", ": rounds", ", asyncio /", ", heapq + Lock /")]
    targets = [
        Target(f"{other}'s CPU, {mode}, against {WHEEL}", ratio(found[mode][other], found[mode][WHEEL], "us"), least)
        for mode, other, least in (("low", ASYNCIO, 4), ("low", HEAP, 1.5), ("high", ASYNCIO, 5), ("high", HEAP, 1.3))
    ]
    title = f"A request with a timeout: CPU time at {size.rate:,.0f} a second"
    return Table("timing-replay", title, size.described(), ("timer", *columns), rows, targets, found)


def _net(size: Size, mode: str) -> Rounds:
    """Without the driver's share."""
    found = size.take(
        list(CONTENDERS), lambda name: in_process("benchmarks.timers.replay", name, mode, size.requests, size.rate)
    )
    driver = middle(found[NOTHING], "us")
    return {name: [{"us": each["us"] - driver} for each in own] for name, own in found.items() if name != NOTHING}
