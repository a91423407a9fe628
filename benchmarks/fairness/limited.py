"""The fairness benchmark's workload, but each flood has a rate: what do quiet tenants wait for then?"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from benchmarks.fairness.contenders import SHAPES
from benchmarks.fairness.server import Real
from benchmarks.fairness.waits import PERCENTILES, Waits, in_ms, quantiles, shown
from benchmarks.fairness.workload import Workload, simulate
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place
from shardq import Client, Limits

FLOODS = 20
RATES: Final = tuple(4 + 0.1 * flood for flood in range(FLOODS))
"""Messages per second of each flood: different ones, so that they do not come all at once."""
BEGIN: Final = 0.1
"""The part of the reads in which the floods spend the tokens that they begin with, all at once."""
SEEDS: Final = range(1, 4)
_numbers = count()


class Beside(NamedTuple):
    """Who else is there, and whether a flood has its rate."""

    said: str
    floods: int
    is_limited: bool


ALONE = Beside("nobody floods", 0, is_limited=False)
LIMITED = Beside(f"{FLOODS} floods, each {RATES[0]:g} to {RATES[-1]:g} per second", FLOODS, is_limited=True)
BESIDE: Final = (ALONE, LIMITED, Beside(f"{FLOODS} floods without a rate", FLOODS, is_limited=False))


def limited(place: Place, client: Client, dequeues: int) -> Table:
    """Quiet tenants' waits without floods, beside floods with a rate, and beside the same without one."""
    found = {(n, m, each): _waits(place, client, n, m, each, dequeues) for n, m in SHAPES for each in BESIDE}
    late = max(_p99(found[n, m, LIMITED]) - _p99(found[n, m, ALONE]) for n, m in SHAPES)
    return Table(
        "fairness-limited",
        f"Floods with a rate: quiet tenants' waits, {PERCENTILES}",
        place.described(f"one writer and reader who take turns, {len(SEEDS)} seeds, {dequeues:,} reads each"),
        ("streams, per shard", "beside", "reads", "ms"),
        [
            (f"{n}, {m}", each.said, shown(waits.dequeues), in_ms(waits.seconds))
            for (n, m, each), waits in found.items()
        ],
        [Target("reads more at the p99 beside floods with a rate", late, 1, True, unit="")],
        {f"{n}, {m}, {each.said}": quantiles(waits.dequeues) for (n, m, each), waits in found.items()},
    )


def _p99(waits: Waits) -> float:
    return percentile(waits.dequeues, 0.99)


def _waits(place: Place, client: Client, n: int, m: int, beside: Beside, dequeues: int) -> Waits:
    found = Waits()
    load = Workload(beside.floods, dequeues=dequeues, tail=dequeues, backlog=max(10, dequeues // 20))
    for seed in SEEDS:
        settings = {"streams": n, "streams_per_shard": m}
        queue = Real(client, f"limited-{next(_numbers)}", settings, salt=f"{seed}/", payload=place.settings.payload)
        if beside.is_limited:
            queue.limit({flood: Limits(rate=rate, burst=1) for flood, rate in enumerate(RATES)})
        waits = simulate(queue, replace(load, seed=seed), time.perf_counter)
        found.add(wait for at, wait in waits.items() if at >= BEGIN * dequeues)
        queue.drop()
    return found
