"""Tables of results, as text, Markdown and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and its target: at most `bound` if `most` is true, else at least `bound`. `note` stands behind it."""

    what: str
    value: float
    bound: float
    most: bool = False
    unit: str = " x"
    note: str = ""

    def __str__(self) -> str:
        reached = self.value <= self.bound if self.most else self.value >= self.bound
        side = "at most" if self.most else "at least"
        bound, value = f"{self.bound:g}{self.unit}", f"{self.value:.2f}{self.unit}"
        note = f" ({self.note})" if self.note else ""
        return f"{'reached' if reached else 'MISSED'}: {self.what} {side} {bound}: {value}{note}"


@dataclass(frozen=True, slots=True)
class Table:
    """One result. `rows` are texts to show, `data` the numbers behind them, `plot` how to draw them."""

    name: str
    title: str
    context: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    targets: list[Target] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """For a terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        shown = ["  ".join(_aligned(cell, widths, at) for at, cell in enumerate(line)).rstrip() for line in lines]
        rule = "-" * max(map(len, shown))
        return "\n".join([self.title, self.context, "", shown[0], rule, *shown[1:], *map(str, self.targets), ""])

    def markdown(self) -> str:
        """For a page."""
        rule = "|".join(["---", *["--:"] * (len(self.columns) - 1)])
        body = [" | ".join(line) for line in [self.columns, *self.rows]]
        lines = [f"| {body[0]} |", f"|{rule}|", *(f"| {line} |" for line in body[1:])]
        targets = ["", *(f"- {target}" for target in self.targets)] if self.targets else []
        return "\n".join([f"{self.context}.", "", *lines, *targets])

    def json(self) -> dict[str, Any]:
        """For a program."""
        return asdict(self)


def _aligned(cell: str, widths: list[int], column: int) -> str:
    return cell.rjust(widths[column]) if column else cell.ljust(widths[column])


def us(value: float) -> str:
    """A time, given in µs."""
    return f"{value:,.0f} µs" if value >= 100 else f"{value:.1f} µs"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f} x" if value < 10 else f"{value:.1f} x"


def percentile(values: list[float], share: float) -> float:
    """The value below which *share* of *values* lies, by the nearest rank."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
