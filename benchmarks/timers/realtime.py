"""The workload in real time: which rate is reached, what it costs; and how late timers are on an idle machine."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any

from benchmarks.timers.contenders import ASYNCIO, CONTENDERS, HEAP, WHEEL, WHEEL_256, Asyncio
from benchmarks.timers.memory import forget_peak, peak, used
from benchmarks.timers.workload import TIMEOUT, requests
from shardq.clock import SystemClock
from shardq.timing import ThreadTimer
from shardq.timing.timer import Alarm

LIVE = (WHEEL, WHEEL_256, HEAP, ASYNCIO)
"""Who takes part; the dict of ticks is not thread-safe."""


class Traffic:
    """Starts requests when they arrive and cancels them when they complete; late ones at once, to catch up."""

    def __init__(self, mode: str, rate: float, seconds: float) -> None:
        made = requests(mode, int(rate * seconds), rate)
        self.arrives = array("d", (each.arrives for each in made))
        in_time = [at for at, each in enumerate(made) if each.completes - each.arrives < TIMEOUT]
        self.order = array("l", sorted(in_time, key=lambda at: made[at].completes))
        self.completes = array("d", (made[at].completes for at in self.order))
        self.took = 0.0

    def run(self, timer: Any) -> Iterator[float]:
        """Everything, with a pause (seconds) to be made at each yield."""
        started: list[Any] = [None] * len(self.arrives)
        first = answered = 0
        begin = time.monotonic()
        while first < len(started) or answered < len(self.order):
            now = time.monotonic() - begin
            while first < len(started) and self.arrives[first] <= now:
                started[first] = timer.start(TIMEOUT)
                first += 1
                self.took = now
            while answered < len(self.order) and self.completes[answered] <= now and self.order[answered] < first:
                at = self.order[answered]
                started[at].cancel()
                started[at] = None
                answered += 1
            following = min([*self.arrives[first : first + 1], *self.completes[answered : answered + 1]], default=now)
            yield max(0.0, min(following - (time.monotonic() - begin), 0.001))
        yield TIMEOUT + 0.05


def threaded(contender: str, traffic: Traffic) -> None:
    """A thread moves the timer; it sleeps until something is due."""
    timer, alarm, over = CONTENDERS[contender](time.monotonic), threading.Event(), False
    timer.wake = alarm.set

    def drive() -> None:
        while not over:
            alarm.clear()
            alarm.wait(timer.run_due())

    driver = threading.Thread(target=drive)
    driver.start()
    for pause in traffic.run(timer):
        time.sleep(pause)  # 0 lets the other thread run
    over = True
    alarm.set()
    driver.join()
    timer.close()


async def looped(traffic: Traffic) -> None:
    """The loop of asyncio, which runs the traffic too."""
    timer = Asyncio(time.monotonic, asyncio.get_running_loop())
    for pause in traffic.run(timer):
        await asyncio.sleep(pause)


def live(contender: str, mode: str, rate: float, seconds: float) -> dict[str, float]:
    """The rate that was reached, CPU seconds per second, and the peak of memory in MB beyond what there was."""
    traffic = Traffic(mode, rate, seconds)
    forget_peak()
    memory, cpu, began = used(), time.process_time(), time.monotonic()
    if contender == ASYNCIO:
        asyncio.run(looped(traffic))
    else:
        threaded(contender, traffic)
    spent, took = time.process_time() - cpu, time.monotonic() - began
    return {"rate": len(traffic.arrives) / traffic.took, "cpu": spent / took, "peak": (peak() - memory) / 2**20}


def lateness(number: int, seconds: float) -> dict[str, float]:
    """How late timers are, in ms: `number` of them within `seconds`; and how often an idle one wakes."""
    dice, late, waits = random.Random(1), array("d"), 0

    def wait(alarm: Alarm, pause: float | None) -> None:
        nonlocal waits
        waits += 1
        alarm.wait(pause)

    clock = SystemClock()

    def note(when: float) -> None:
        late.append(clock.monotonic() - when)

    with ThreadTimer(wait=wait) as timer:
        for _ in range(number):
            when = clock.monotonic() + dice.random() * seconds
            timer.call_at(when, note, when)
        time.sleep(seconds + 0.2)
        idle = waits
        time.sleep(0.5)
        woken = waits - idle
    ordered = sorted(each * 1000 for each in late)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] for name, share in places.items()}
    return {**found, "early": sum(each < 0 for each in ordered), "woken": woken, "ran": len(ordered)}


def measure(name: str, mode: str, rate: str, seconds: str = "") -> dict[str, float]:
    """`lateness`, a number and seconds, else a contender, a mode, a rate and seconds."""
    return lateness(int(mode), float(rate)) if name == "lateness" else live(name, mode, float(rate), float(seconds))
