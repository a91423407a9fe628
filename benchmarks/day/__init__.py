"""day: how long do messages wait, and at how many worker-hours, by what their workers are scaled?

The same day with each scaler: by shardq's numbers, by `len()`, by XLEN, by CPU. The queue is a real one, on a real
server that runs shardq's own functions. Only the clock is made up: by it these functions count, pods start, jobs take
their time, and Kubernetes and KEDA look. So a day takes half a minute, and the figures do not depend on how busy the
machine is. They are the same each time but for what the queue leaves to chance: who of two tenants is first.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from benchmarks.day.plan import HOUR, Plan, an_hour, whole_day
from benchmarks.day.pods import SLOTS
from benchmarks.day.scalers import Cpu, Length, Scaler, StreamLength, own
from benchmarks.day.simulation import MOST, Day, Found
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile
from benchmarks.settings import Place, Settings, machine, place

OURS: Final = "shardq, load"
LENGTH: Final = "len()"
CAPPED: Final = "len(), fewer pods"
XLEN: Final = "XLEN"
CPU: Final = "CPU"
FEW: Final = 14
"""Pods that `len()` may have if it is to take about as many worker-hours as shardq's scaler."""
QUICK: Final = 5.0
"""With fewer seconds in the settings only an hour passes."""
PART: Final = 900.0
"""Seconds of the day whose waits a picture puts together."""


@dataclass(frozen=True)
class Tried:
    """A scaler with one target, and how many pods it may have."""

    name: str
    target: float
    make: Callable[[float], Scaler]
    most: int = MOST


TRIED: Final = (
    *(Tried(OURS, target, lambda target: own("load", target)) for target in (3, 4, 6)),
    *(Tried("shardq, drain", target, lambda target: own("drain", target)) for target in (60,)),
    *(Tried("shardq, age", target, lambda target: own("age", target)) for target in (10,)),
    *(Tried(LENGTH, target, Length) for target in (4, 6)),
    *(Tried(CAPPED, target, Length, FEW) for target in (6,)),
    *(Tried(XLEN, target, StreamLength) for target in (1, 1.5)),
    *(Tried(CPU, target, Cpu) for target in (0.3, 0.4)),
)
"""A worker has four slots. With a target of two messages of `XLEN`, a third of the day's messages were never served."""


@dataclass(frozen=True)
class Outcome:
    """What a day came to."""

    tried: Tried
    found: Found

    @property
    def could_run(self) -> list[float]:
        """How long those messages waited that no limit held back."""
        return [wait for _, wait, kind in self.found.waits if kind != "limited"]

    @property
    def p99(self) -> float:
        """Seconds."""
        return percentile(self.could_run, 0.99)

    @property
    def cost(self) -> float:
        """By which targets are compared: half the wait is worth twice the worker-hours. All must be done at the end."""
        return self.p99 * self.found.hours if not self.found.undone else float("inf")


def run(where: Place) -> Iterator[Table]:
    """The day with each scaler at its best target, and all that was tried. `--only` names scalers."""
    chosen = where.settings
    is_short = chosen.seconds < QUICK
    plan = _plan(chosen, is_short)
    words = chosen.only.split(",")
    tried = [each for each in TRIED if any(word in each.name for word in words)]
    # Each day has a server of its own, and takes no longer by its clock if another one is simulated beside it.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        days = [pool.submit(_day, chosen, TRIED.index(each), is_short) for each in tried]
        outcomes = [Outcome(each, day.result()) for each, day in zip(tried, days, strict=True)]
    context = f"{where.server.name}, {machine()}; a made-up clock, seed {chosen.seed}"
    yield _table(outcomes, plan, context, "An hour" if is_short else "A day")
    yield _all(outcomes, context)


def _day(chosen: Settings, number: int, is_short: bool) -> Found:
    """Let a day pass, with a server of its own."""
    tried = TRIED[number]
    with place(chosen) as here, connect(here.url) as server:
        scaler = tried.make(tried.target)
        return Day(server, "day", _plan(chosen, is_short), scaler, chosen.seed, tried.most).run()


def _plan(chosen: Settings, is_short: bool) -> Plan:
    return an_hour(chosen.seed) if is_short else whole_day(chosen.seed)


def _table(outcomes: Sequence[Outcome], plan: Plan, context: str, title: str) -> Table:
    best = best_of(outcomes)
    targets = _targets(best) if title == "A day" else []
    xlen = best.get(XLEN)
    rows = []
    for name, each in best.items():
        ratios = (f"{each.p99 / xlen.p99:.2f}", f"{each.found.hours / xlen.found.hours:.2f}") if xlen else ("-", "-")
        rows.append((name, f"{each.tried.target:g}", f"{each.tried.most}", *_shown(each), *ratios))
    columns = (
        "scaler", "target", "most pods", "wait p50", "wait p99", "worker-hours", "begun anew", "p99 / XLEN",
        "worker-hours / XLEN",
    )  # fmt: skip
    data: dict[str, Any] = {name: _drawn(each) for name, each in best.items()}
    data["events"] = [[at / HOUR, what] for at, what in plan.events]
    messages = f"{title} of {len(plan.arrivals):,} messages, with each scaler"
    return Table("day", messages, context, columns, rows, targets, data=data)


def _targets(best: dict[str, Outcome]) -> list[Target]:
    found = []
    for other, bounds, note in (
        (XLEN, (0.5, 0.8), ""),
        (LENGTH, (1.25, 0.8), "as many pods"),
        (CAPPED, (0.5, 1.0), ""),
    ):
        if OURS in best and other in best:
            ours, its = best[OURS], best[other]
            found.append(Target(f"p99 wait, of {other}'s", ours.p99 / its.p99, bounds[0], most=True, note=note))
            ratio = ours.found.hours / its.found.hours
            found.append(Target(f"worker-hours, of {other}'s", ratio, bounds[1], most=True, note=note))
    return found


def _all(outcomes: Sequence[Outcome], context: str) -> Table:
    """All that was tried."""
    rows = [
        (each.tried.name, f"{each.tried.target:g}", f"{each.tried.most}", *_shown(each), f"{each.found.undone:,}")
        for each in outcomes
    ]
    columns = (
        "scaler", "target", "most pods", "wait p50", "wait p99", "worker-hours", "begun anew", "not done at the end",
    )  # fmt: skip
    data = {f"{each.tried.name} {each.tried.target:g}": [each.p99, each.found.hours] for each in outcomes}
    return Table("day-tried", "The targets that were tried", context, columns, rows, data=data)


def best_of(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """Return the outcome of the best target of each scaler, by `cost`."""
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        by_name[each.tried.name].append(each)
    return {name: min(own, key=lambda each: each.cost) for name, own in by_name.items()}


def _shown(each: Outcome) -> tuple[str, ...]:
    waits = each.could_run
    found = each.found
    return (
        f"{percentile(waits, 0.5):.1f} s", f"{each.p99:,.0f} s", f"{found.hours:.1f}", f"{found.begun_anew:,}"
    )  # fmt: skip


def _drawn(each: Outcome) -> dict[str, Any]:
    """What a picture shows: how many pods were wanted when, and the p99 of what each quarter of an hour brought."""
    pods: list[tuple[float, int]] = []
    for sample in each.found.samples:
        if not pods or pods[-1][1] != sample.replicas:
            pods.append((round(sample.at / HOUR, 3), sample.replicas))
    parts: dict[int, list[float]] = defaultdict(list)
    for at, wait, kind in each.found.waits:
        if kind != "limited":
            parts[int((at - wait) // PART)].append(wait)
    waits = [((part + 0.5) * PART / HOUR, round(percentile(own, 0.99), 2)) for part, own in sorted(parts.items())]
    return {"pods": pods, "waits": waits, "p99": each.p99, "hours": each.found.hours, "slots": SLOTS}
