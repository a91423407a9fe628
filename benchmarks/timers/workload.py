"""The workload: Poisson arrivals, a timeout of 200 ms, completion times from a log-normal distribution.

Source: "Purgatory Redesign Proposal", section "Benchmark"; the shape of the distribution as in Kafka's
`TestPurgatoryPerformance` (its Scala original: a request completes at its arrival plus its *latency*).
"""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import dataclass

TIMEOUT = 0.2
QUARTILE = 0.67449  # standard deviations from the median to the 75th percentile
MODES = {"low": (20.0, 60.0), "high": (200.0, 400.0)}
"""Of the completion times in ms: median, 75th percentile. With `low` 8 % of the requests time out, with `high` 50 %."""


@dataclass(frozen=True, slots=True)
class Request:
    """When a request arrives and when it completes (seconds), were there no timeout."""

    arrives: float
    completes: float


def requests(mode: str, number: int, rate: float, seed: int = 1) -> list[Request]:
    """`number` requests at `rate` per second, by arrival."""
    dice = random.Random(seed)
    median, upper = MODES[mode]
    mu, sigma = math.log(median), math.log(upper / median) / QUARTILE
    made, now = [], 0.0
    for _ in range(number):
        now += dice.expovariate(rate)
        made.append(Request(now, now + dice.lognormvariate(mu, sigma) / 1000))
    return made


class Schedule:
    """The workload by milliseconds: how many arrive in each, which complete in time, which are long over."""

    def __init__(self, mode: str, number: int, rate: float) -> None:
        # Plain arrays, so that the garbage collector has nothing of the driver's to look at.
        made = requests(mode, number, rate)
        self.ticks = int(made[-1].arrives * 1000) + int(TIMEOUT * 1000) + 3
        self.arrivals = array("l", [0] * self.ticks)
        self.completed = [array("l") for _ in range(self.ticks)]
        self.timed_out = [array("l") for _ in range(self.ticks)]
        for at, request in enumerate(made):
            self.arrivals[int(request.arrives * 1000)] += 1
            if request.completes - request.arrives < TIMEOUT - 0.002:
                self.completed[int(request.completes * 1000) + 1].append(at)
            else:
                self.timed_out[int((request.arrives + TIMEOUT) * 1000) + 2].append(at)
        self.timeouts = sum(map(len, self.timed_out))
