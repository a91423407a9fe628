"""The same workload on the real server, read one by one.

Ideal fair queueing is no queue of the library: its waits are the model's. In seconds a wait is as long as the plain
queue took for so many messages at that point of the same round, so that it meets what else the machine does, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeAlias

from benchmarks.fairness.contenders import FLOODERS, IDEAL, PLAIN, SERVED, SHAPES, WINDOW, Contender
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


class Rounds:
    """Runs loads on the server; each seed deals other shards, and within it the orders take turns."""

    def __init__(self, client: Client, orders: Sequence[Contender], payload: int, name: str = "fair") -> None:
        self._client, self._orders, self._payload, self._name = client, orders, payload, name
        self._numbers = count()

    def run(self, n: int, m: int, loads: Iterable[Workload], keep: Callable[[int], bool] = lambda _: True) -> Found:
        """All orders under all *loads*; the waits of messages whose dequeue of writing is to be kept."""
        found: Found = {name: Waits() for name in (IDEAL, *(each.name for each in self._orders))}
        for load in loads:
            plain: Real | None = None
            for each in self._orders:
                queue = Real(
                    self._client,
                    f"{self._name}-{next(self._numbers)}",
                    each.on_server(n, m),
                    salt=f"{load.seed}/",
                    payload=self._payload,
                )
                waits = simulate(queue, load, time.perf_counter)
                found[each.name].add(wait for at, wait in waits.items() if keep(at))
                plain = queue if each.name == PLAIN else plain
                queue.drop()
            ideal = {at: wait for at, (wait, _) in simulate(Ring(), load).items() if keep(at)}
            found[IDEAL].add((wait, _seconds(plain, at, wait) if plain else math.inf) for at, wait in ideal.items())
        return found


def tables(place: Place, client: Client, messages: int, seeds: range) -> Iterator[Table]:
    """The figures of the real queue; the proof, which is design.md's figure, comes first."""
    rounds = Rounds(client, SERVED, place.settings.payload)
    steady = {(n, m): _steady(rounds, n, m, messages, seeds) for n, m in SHAPES}
    yield _proof(place, {shape: found[AIMED] for shape, found in steady.items()}, messages * 2, len(seeds))
    for (n, m), found in steady.items():
        yield _shape(place, n, m, found, messages)


def _seconds(plain: Real, at: int, wait: float) -> float:
    return plain.seconds(at, at + int(wait)) if wait < math.inf else math.inf


def _steady(rounds: Rounds, n: int, m: int, dequeues: int, seeds: range) -> dict[int, Found]:
    """By the number of floods; more of the number that the figure is about."""
    loads = {flooders: [_load(flooders, dequeues, seed) for seed in seeds[:1]] for flooders in FLOODERS}
    loads[AIMED] = [_load(AIMED, dequeues * 2, seed) for seed in seeds]
    return {flooders: rounds.run(n, m, each) for flooders, each in loads.items()}


def _load(flooders: int, dequeues: int, seed: int) -> Workload:
    return Workload(flooders, dequeues=dequeues, tail=dequeues // 3, backlog=max(10, dequeues // 20), seed=seed)


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


def _shape(place: Place, n: int, m: int, found: dict[int, Found], dequeues: int) -> Table:
    return Table(
        f"fairness-server-{n}-{m}",
        f"The real queue, {n} streams, {m} per shard: quiet tenants' waits, {PERCENTILES}",
        place.described(f"{TURNS}, {dequeues:,} dequeues ({AIMED} flooding: as above)"),
        ("flooding: order", *COLUMNS),
        [row for flooders, by in found.items() for row in _rows(str(flooders), by)],
        data={str(flooders): _kept(by) for flooders, by in found.items()},
    )


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
