"""The size of a run whose contenders have processes of their own, and what it is measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.rounds import take_turns
from benchmarks.settings import machine

Rounds = dict[str, list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    requests: int = 1_000_000
    rounds: int = 5
    rate: float = 100_000.0

    def described(self) -> str:
        """The machine and the sizes, without which a figure means nothing."""
        return f"{self.requests:,} requests, {self.rounds} rounds; {machine()}"

    def take(self, names: Sequence[str], measure: Callable[[str], dict[str, float]]) -> Rounds:
        """Let them take turns. New processes need no round that does not count."""
        return take_turns(names, self.rounds, 1, measure, warm=0)
