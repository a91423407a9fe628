"""The workload on a virtual clock, a look each millisecond: CPU time per request."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.timers.contenders import CONTENDERS, NOTHING
from benchmarks.timers.workload import TIMEOUT, Schedule


class Clock:
    """Time that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def replay(contender: str, mode: str, requests: int, rate: float) -> dict[str, float]:
    """CPU microseconds per request, the most buckets that the delay queue held, and could hold."""
    schedule, clock = Schedule(mode, requests, rate), Clock()
    timer = CONTENDERS[contender](clock.monotonic)
    started: list[Any] = [None] * requests
    first = queue = 0
    wheel = getattr(timer, "_wheel", None)
    began = time.process_time()
    for tick, arrivals in enumerate(schedule.arrivals):
        clock.now = tick / 1000
        timer.run_due()
        if wheel is not None:
            queue = max(queue, len(wheel._queue))
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
    most = sum(len(each.buckets) for each in wheel._wheels) if wheel is not None else 0
    return {"us": spent / requests * 1e6, "queue": queue, "most": most}


def measure(name: str, mode: str, requests: str, rate: str) -> dict[str, float]:
    return replay(name, mode, int(requests), float(rate))
