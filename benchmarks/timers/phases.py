"""A million timers at once: memory, cancelling, expiring, and starting and stopping beside them."""

from __future__ import annotations

import gc
import random
import sys
import time
from array import array
from typing import Any

from benchmarks.timers.contenders import CONTENDERS
from benchmarks.timers.memory import used
from benchmarks.timers.replay import Clock

CANCELLED = 0.92  # the share that completes in time in the `low` mode of the workload
PAIRS = 100_000
CONSTANT = 10.0


def phases(contender: str, delays: str, number: int) -> dict[str, float]:
    """Bytes per timer; the share of the memory blocks that cancelling gave back at once; CPU s to run the rest."""
    dice, clock = random.Random(1), Clock()
    waits = array("d", ((dice.randrange(1, 10_001) / 1000 if delays == "mixed" else CONSTANT) for _ in range(number)))
    timer = CONTENDERS[contender](clock.monotonic)
    started: list[Any] = [None] * number
    found: dict[str, float] = {}
    gc.collect()
    blocks, memory = sys.getallocatedblocks(), used()
    for at, delay in enumerate(waits):
        if delays == "constant":
            clock.now = at / number * CONSTANT * 0.9
        started[at] = timer.start(delay)
    found["bytes"] = (used() - memory) / number
    held = sys.getallocatedblocks() - blocks
    for at in dice.sample(range(number), int(number * CANCELLED)):
        started[at].cancel()
        started[at] = None
    found["freed"] = 1 - (sys.getallocatedblocks() - blocks) / held
    del started
    found["expire"] = expire(timer, clock)
    timer.close()
    return found


def pairs(contender: str, pending: int) -> float:
    """Nanoseconds to start a timer and to stop it, beside *pending* ones; all from 1 ms to 10 s."""
    dice, clock = random.Random(1), Clock()
    timer = CONTENDERS[contender](clock.monotonic)
    kept = [timer.start(dice.random() * 10) for _ in range(pending)]
    delays = array("d", (dice.random() * 10 for _ in range(PAIRS)))
    began = time.process_time()
    for delay in delays:
        timer.start(delay).cancel()
    spent = time.process_time() - began
    del kept
    timer.close()
    return spent / PAIRS * 1e9


def expire(timer: Any, clock: Clock) -> float:
    """CPU seconds to run what is left, looking each millisecond."""
    start = clock.now
    began = time.process_time()
    for tick in range(1, 10_003):
        clock.now = start + tick / 1000
        timer.run_due()
    return time.process_time() - began


def measure(name: str, delays: str, number: str) -> dict[str, float]:
    """DELAYS: `constant` (10 s, started within 9 s), `mixed` (1 to 10,000 ms, started at once), or `pairs`."""
    return {"ns": pairs(name, int(number))} if delays == "pairs" else phases(name, delays, int(number))
