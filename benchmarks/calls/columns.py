"""The cells that the tables of calls share."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.calls.agents import Runs
from benchmarks.calls.trees import Tree
from benchmarks.report import Target, times, us
from benchmarks.rounds import Measured, middle, ratio, ratios
from benchmarks.settings import Place

SHORTER, MORE = 20, 10


def short(place: Place) -> tuple[int, int]:
    """Messages (whole batches) and rounds of short turns: fewer messages than the settings say, and more rounds.

    Where other work comes and goes on the machine, what takes turns quickly meets the same of it.
    """
    chosen = place.settings
    batches = -(-chosen.messages // SHORTER // chosen.batch)
    return max(1, batches) * chosen.batch, MORE * chosen.rounds


def context(place: Place, rounds: int, base: Tree | None) -> str:
    """Where and how it was measured, and beside which commit."""
    said = Place(place.server, replace(place.settings, rounds=rounds)).described()
    return f"{said}; base: {base.commit}" if base else said


def faster(said: str, runs: Measured, other: Measured, bound: float) -> Target:
    """That the rate of *runs* is at least so many times the other's."""
    return _target(said, ratios(other, runs, "wall"), bound, most=False)


def less(said: str, runs: Measured, other: Measured, what: str, bound: float) -> Target:
    """That *runs* took at most so many times as long as the other."""
    return _target(said, ratios(runs, other, what), bound, most=True)


def _target(said: str, found: list[float], bound: float, *, most: bool) -> Target:
    """The median of the rounds, and between which ratios the middle half of the rounds lies."""
    ordered = sorted(found)
    quarter = len(ordered) // 4
    note = f"half of the rounds: {times(ordered[quarter])} to {times(ordered[-1 - quarter])}"
    return Target(said, median(ordered), bound, most, note=note)


def compared(runs: Runs, references: dict[str, str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows: rates, each reference's (a heading, and the name of its row), CPU, server time, p50, p99."""
    present = {heading: runs[name] for heading, name in references.items() if name in runs}
    columns = ("one message", "messages/s", "slowest to fastest round", *(f"rate / {name}" for name in present))
    columns = (*columns, "client CPU", "server CPU", "server time", "p50", "p99")
    rows = []
    for name, own in runs.items():
        rates = sorted(1e6 / run.wall for run in own)
        cells = [name, f"{1e6 / middle(own, 'wall'):,.0f}", f"{rates[0]:,.0f} to {rates[-1]:,.0f}"]
        cells += [times(1 / ratio(own, other, "wall")) for other in present.values()]
        cells += [us(middle(own, what)) for what in ("client", "server", "commands", "p50", "p99")]
        rows.append(tuple(cells))
    return columns, rows


def data(runs: Runs) -> dict[str, Any]:
    """The numbers of every round."""
    return {name: [run._asdict() for run in own] for name, own in runs.items()}
