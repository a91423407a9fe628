"""fairness: how long quiet tenants wait while others flood, by the order in which the queue hands out.

First models of several orders, without I/O; then the real queue under the same workload, with the same shards and the
same random choices.
"""

from __future__ import annotations

import math
import time
from typing import Any

from benchmarks.fairness.contenders import CONTENDERS, IDEAL, PLAIN, Contender
from benchmarks.fairness.server import Real
from benchmarks.fairness.workload import Workload, simulate
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place
from shardq import Client
from shardq.model import QueueSettings

SHAPES = ((16, 2), (64, 6), (256, 4))
FLOODERS = (1, 4, 20, 100)
BOUND = 3.0
"""The p99 wait of quiet tenants beside 20 floods, in waits under ideal fair queueing: design.md, figures to reach."""

AIMED = ("window 1", "window 2", "window 8 / active tenants")
SHARES = (0.5, 0.9, 0.99, 1.0)
PERCENTILES = "p50 / p90 / p99 / max"
QUANTILES = [at / 200 for at in range(1, 201)]


def run(place: Place) -> list[Table]:
    """All tables: 30,000 dequeues and 5 seeds per cell of the models at full size, 3,000 on the server."""
    messages, seeds = place.settings.messages, range(1, max(2, place.settings.rounds - 1))
    tables = [_simulated(n, m, messages * 6, seeds) for n, m in SHAPES]
    tables.append(_moment(messages, seeds))
    with Client.from_url(place.url) as client:
        tables += [_served(place, client, n, m, messages * 3 // 5) for n, m in SHAPES]
    return tables


def _simulated(n: int, m: int, dequeues: int, seeds: range) -> Table:
    found = {
        each.name: {
            flooders: [
                wait
                for seed in seeds
                for wait, _ in simulate(each.model(n, m, f"{seed}/"), _load(flooders, dequeues, seed)).values()
            ]
            for flooders in FLOODERS
        }
        for each in CONTENDERS
    }
    return Table(
        f"fairness-model-{n}-{m}",
        f"Quiet tenants beside floods, {n} streams, {m} per shard: waits in dequeues, {PERCENTILES}",
        f"a model without I/O; 200 quiet tenants write 1 message in 20; {len(seeds)} seeds, {dequeues:,} dequeues each",
        ("order", *(f"{flooders} flooding" for flooders in FLOODERS), "p99 / ideal, 20 flooding"),
        [
            (name, *map(_cell, by.values()), _shown(_times(by[20], found[IDEAL][20]), "{:.2f} x"))
            for name, by in found.items()
        ],
        [_target(name, found[name][20], found[IDEAL][20]) for name in AIMED],
        {name: {str(flooders): _quantiles(waits) for flooders, waits in by.items()} for name, by in found.items()},
    )


def _moment(messages: int, seeds: range) -> Table:
    """One flood alone at first, then many more at once: the waits of what is written in the next 100 dequeues."""
    alone = messages // 5
    seeds = range(1, 8 * len(seeds) + 1)
    found = {
        each.name: [_met(each, n, m, alone, seeds) for n, m in SHAPES] for each in CONTENDERS if each.name != PLAIN
    }
    return Table(
        "fairness-moment",
        f"19 floods begin beside one: waits of what quiet tenants write in the next 100 dequeues, {PERCENTILES}",
        f"a model without I/O; {len(seeds)} seeds, the lone flood went on for {alone:,} dequeues",
        ("order", *(f"{n}, {m}" for n, m in SHAPES)),
        [(name, *map(_cell, by)) for name, by in found.items()],
        data={name: [_quantiles(waits) for waits in by] for name, by in found.items()},
    )


def _met(each: Contender, n: int, m: int, alone: int, seeds: range) -> list[float]:
    waits: list[float] = []
    for seed in seeds:
        load = Workload(20, dequeues=alone + 100, late=alone, tail=2000, backlog=300, seed=seed)
        found = simulate(each.model(n, m, f"{seed}/"), load)
        waits += [wait for at, (wait, _) in found.items() if at >= alone]
    return waits


def _served(place: Place, client: Client, n: int, m: int, dequeues: int) -> Table:
    rows: list[tuple[str, ...]] = []
    data = {}
    for flooders in FLOODERS:
        load = Workload(flooders, dequeues=dequeues, tail=dequeues // 3, backlog=max(10, dequeues // 10))
        ideal = [wait for wait, _ in simulate(CONTENDERS[0].model(n, m, "1/"), load).values()]
        for each in CONTENDERS:
            if (settings := _settings(each, n, m)) is not None:
                queue = Real(client, f"fair-{n}-{flooders}-{len(rows)}", settings, salt="1/")
                waits = list(simulate(queue, load, time.perf_counter).values())
                rows.append(_row(f"{flooders}, {each.name}", waits, ideal))
                data[rows[-1][0]] = _quantiles([wait for wait, _ in waits])
    return Table(
        f"fairness-server-{n}-{m}",
        f"The real queue, {n} streams, {m} per shard: quiet tenants' waits, {PERCENTILES}",
        place.described(f"one writer and reader, {dequeues:,} dequeues{_left_out()}"),
        ("flooding, order", "dequeues", "seconds", "p99 / ideal"),
        rows,
        data=data,
    )


def _load(flooders: int, dequeues: int, seed: int) -> Workload:
    backlog, tail = max(100, dequeues // 10), min(10_000, dequeues)
    return Workload(flooders, dequeues=dequeues, tail=tail, backlog=backlog, seed=seed)


def _settings(each: Contender, n: int, m: int) -> dict[str, Any] | None:
    """What makes the real queue such a one; None when it cannot be."""
    if each.settings is None or not each.settings.keys() <= QueueSettings.__annotations__.keys():
        return None
    return {"streams": n, "streams_per_shard": m} | each.settings


def _left_out() -> str:
    """A remark on what this version's queue has not."""
    names = [each.name for each in CONTENDERS if each.settings is not None and _settings(each, 1, 1) is None]
    return f"; not in this version: {', '.join(names)}" if names else ""


def _row(name: str, waits: list[tuple[float, float]], ideal: list[float]) -> tuple[str, ...]:
    dequeues, seconds = [wait for wait, _ in waits], [wait for _, wait in waits]
    return name, _cell(dequeues), _cell(seconds, "{:.3f}"), _ratio(dequeues, ideal)


def _cell(waits: list[float], how: str = "{:,.0f}") -> str:
    return " / ".join(_shown(percentile(waits or [math.inf], share), how) for share in SHARES)


def _shown(value: float, how: str) -> str:
    return "never" if value == math.inf else how.format(value)


def _target(name: str, waits: list[float], ideal: list[float]) -> Target:
    return Target(f"{name}: p99 beside 20 floods against ideal fair queueing's", _times(waits, ideal), BOUND, most=True)


def _ratio(waits: list[float], ideal: list[float]) -> str:
    return _shown(_times(waits, ideal), "{:.2f} x")


def _times(waits: list[float], ideal: list[float]) -> float:
    """One p99 in another's."""
    wait, least = (percentile(each or [math.inf], 0.99) for each in (waits, ideal))
    return math.inf if wait == math.inf else wait / max(1, least)


def _quantiles(waits: list[float]) -> list[float | None]:
    """For JSON and plots: 200 quantiles, None for never."""
    return [None if value == math.inf else value for value in (percentile(waits or [math.inf], at) for at in QUANTILES)]
