"""The same workload on the real server, read one by one.

Ideal fair queueing is no queue of the library: its waits are the model's. In seconds a wait is as long as the plain
queue took for so many messages at that point of the same round, so that it meets what else the machine does, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TypeAlias

from benchmarks.fairness.contenders import IDEAL, PLAIN, SERVED, SHAPES, WINDOW
from benchmarks.fairness.disciplines import Ring
from benchmarks.fairness.server import Real
from benchmarks.fairness.waits import BOUND, PERCENTILES, Waits, in_ms, quantiles, ratio, shown, times
from benchmarks.fairness.workload import Workload, simulate
from benchmarks.report import Table, Target
from benchmarks.settings import Place
from shardq import Client

AIMED = 20
COLUMNS = ("dequeues", "ms", "p99 / ideal, dequeues", "p99 / ideal, time")
TURNS = "one writer and reader who take turns"

Shape: TypeAlias = tuple[int, int]
Found: TypeAlias = dict[str, Waits]
"""By the name of the order."""


def table(place: Place, client: Client, messages: int, seeds: range) -> Table:
    """The figures of the real queue, which are design.md's. Each seed deals other shards."""
    loads = [_load(messages * 2, seed) for seed in seeds]
    found = {(n, m): _run(place, client, n, m, loads) for n, m in SHAPES}
    return _proof(place, found, messages * 2, len(seeds))


def _run(place: Place, client: Client, n: int, m: int, loads: Sequence[Workload]) -> Found:
    """All orders under all *loads*."""
    found: Found = {name: Waits() for name in (IDEAL, *(each.name for each in SERVED))}
    for load in loads:
        queues = {}
        for number, each in enumerate(SERVED):
            name, settings = f"fair-{n}-{load.seed}-{number}", each.on_server(n, m)
            queue = Real(client, name, settings, salt=f"{load.seed}/", payload=place.settings.payload)
            queues[each.name] = queue
            found[each.name].add(simulate(queue, load, time.perf_counter).values())
            queue.drop()
        ideal = simulate(Ring(), load)
        found[IDEAL].add((wait, _seconds(queues[PLAIN], at, wait)) for at, (wait, _) in ideal.items())
    return found


def _seconds(plain: Real, at: int, wait: float) -> float:
    return plain.seconds(at, at + int(wait)) if wait < math.inf else math.inf


def _load(dequeues: int, seed: int) -> Workload:
    return Workload(AIMED, dequeues=dequeues, tail=dequeues // 3, backlog=max(10, dequeues // 20), seed=seed)


def _proof(place: Place, found: dict[Shape, Found], dequeues: int, seeds: int) -> Table:
    return Table(
        "fairness-server",
        f"The real queue beside {AIMED} floods: quiet tenants' waits, {PERCENTILES}",
        place.described(f"{TURNS}, {seeds} seeds, {dequeues:,} dequeues each"),
        ("streams, per shard: order", *COLUMNS),
        [row for (n, m), by in found.items() for row in _rows(f"{n}, {m}", by)],
        [target for (n, _), by in found.items() for target in _targets(n, by)],
        {f"{n}, {m}": _kept(by) for (n, m), by in found.items()},
    )


def _targets(n: int, found: Found) -> list[Target]:
    ours, ideal = found[WINDOW], found[IDEAL]
    what = f"{WINDOW}, {n} streams: p99 beside {AIMED} floods against ideal fair queueing's, in"
    return [
        Target(f"{what} dequeues", times(ours.dequeues, ideal.dequeues), BOUND, most=True),
        Target(f"{what} seconds", times(ours.seconds, ideal.seconds, 0), BOUND, most=True),
    ]


def _rows(at: str, found: Found) -> list[tuple[str, str, str, str, str]]:
    ideal = found[IDEAL]
    return [
        (
            f"{at}: {name}", shown(waits.dequeues), in_ms(waits.seconds), ratio(waits.dequeues, ideal.dequeues),
            ratio(waits.seconds, ideal.seconds, 0),
        )
        for name, waits in found.items()
    ]  # fmt: skip


def _kept(found: Found) -> dict[str, list[float | None]]:
    return {name: quantiles(waits.dequeues) for name, waits in found.items()}
