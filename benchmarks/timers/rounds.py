"""The size of a run; and contenders that run one after the other, each in a process of its own, in several rounds."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Rounds = dict[str, list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    requests: int = 1_000_000
    rounds: int = 5
    rate: float = 100_000.0
    seconds: float = 2.0
    rates: tuple[int, ...] = (50_000, 100_000, 200_000, 300_000, 400_000, 500_000)
    late: int = 2000

    def described(self) -> str:
        """The machine and the sizes, without which a figure means nothing."""
        return f"{self.requests:,} requests, {self.rounds} rounds; {place()}"


def place() -> str:
    """The machine."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    return f"{machine}, Python {platform.python_version()}"


QUICK = Size(requests=100_000, rounds=3, seconds=0.5, rates=(25_000, 100_000, 200_000), late=200)


def rounds_of(number: int, names: Sequence[str], measure: Callable[[str], dict[str, float]]) -> Rounds:
    """The results of `measure` for each name, which are measured one after the other in each round."""
    found: Rounds = {name: [] for name in names}
    for _ in range(number):
        for name in names:
            found[name].append(measure(name))
    return found


def ratio(found: Rounds, field: str, name: str, reference: str) -> float:
    """How many times more `reference` takes: the median over the rounds, each by itself."""
    return median(
        other[field] / max(own[field], 1e-9) for own, other in zip(found[name], found[reference], strict=True)
    )


def middle(found: Rounds, field: str, name: str) -> float:
    """The median."""
    return median(each[field] for each in found[name])


def best(found: Rounds, field: str, name: str) -> float:
    """The least."""
    return min(each[field] for each in found[name])
