"""orders: how long do quiet tenants wait while others flood? In models of the orders of delivery that were compared.

The models have no I/O, so their figures are the same everywhere; benchmarks/fairness has those of the real queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fairness.contenders import CONTENDERS, FLOODERS, IDEAL, PLAIN, SHAPES, WINDOW, Contender
from benchmarks.fairness.waits import BOUND, PERCENTILES, quantiles, ratio, shown, times
from benchmarks.fairness.workload import Workload, simulate
from benchmarks.report import Table, Target
from benchmarks.settings import Place


def run(place: Place) -> Iterator[Table]:
    """A table for each N and M (30,000 dequeues and 5 seeds a cell), and one for the moment when floods begin."""
    messages, seeds = place.settings.messages, range(1, max(2, place.settings.rounds - 1))
    for n, m in SHAPES:
        yield _steady(n, m, messages * 6, seeds)
    yield _moment(messages, seeds)


def _steady(n: int, m: int, dequeues: int, seeds: range) -> Table:
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
    ideal = found[IDEAL]
    return Table(
        f"fairness-model-{n}-{m}",
        f"Models beside floods, {n} streams, {m} per shard: quiet tenants' waits in dequeues, {PERCENTILES}",
        f"a model without I/O; 200 quiet tenants write 1 message in 20; {len(seeds)} seeds, {dequeues:,} dequeues each",
        ("order", *(f"{flooders} flooding" for flooders in FLOODERS), "p99 / ideal, 20 flooding"),
        [(name, *map(shown, by.values()), ratio(by[20], ideal[20])) for name, by in found.items()],
        [
            Target(
                f"{WINDOW}, model, {n} streams: p99 beside 20 floods against ideal fair queueing's",
                times(found[WINDOW][20], ideal[20]),
                BOUND,
                most=True,
            )
        ],
        {name: {str(flooders): quantiles(waits) for flooders, waits in by.items()} for name, by in found.items()},
    )


def _moment(messages: int, seeds: range) -> Table:
    """One flood alone at first, then many more at once: the waits of what is written in the next 100 dequeues."""
    alone = messages // 5
    seeds = range(1, 8 * len(seeds) + 1)
    found = {
        each.name: [_met(each, n, m, alone, seeds) for n, m in SHAPES] for each in CONTENDERS if each.name != PLAIN
    }
    return Table(
        "fairness-moment-model",
        f"Models, 19 floods begin beside one: waits of the messages that quiet tenants write next, {PERCENTILES}",
        f"a model without I/O; {len(seeds)} seeds, the lone flood went on for {alone:,} dequeues",
        ("order", *(f"{n}, {m}" for n, m in SHAPES)),
        [(name, *map(shown, by)) for name, by in found.items()],
        data={name: [quantiles(waits) for waits in by] for name, by in found.items()},
    )


def _met(each: Contender, n: int, m: int, alone: int, seeds: range) -> list[float]:
    waits: list[float] = []
    for seed in seeds:
        load = Workload(20, dequeues=alone + 100, late=alone, tail=2 * alone, backlog=max(10, alone // 3), seed=seed)
        found = simulate(each.model(n, m, f"{seed}/"), load)
        waits += [wait for at, (wait, _) in found.items() if at >= alone]
    return waits


def _load(flooders: int, dequeues: int, seed: int) -> Workload:
    backlog, tail = max(100, dequeues // 10), min(10_000, dequeues)
    return Workload(flooders, dequeues=dequeues, tail=tail, backlog=backlog, seed=seed)
