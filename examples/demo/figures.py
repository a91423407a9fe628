"""Figures, as people read them."""

from collections.abc import Sequence

NAME = 15  # letters of a tenant's name within a line


def seconds(value: float) -> str:
    """Such as 8 ms, 340 ms, 4.2 s."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def plural(count: int, noun: str) -> str:
    """`1 lease`, `2 leases`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def short(name: str, most: int = NAME) -> str:
    """A tenant's name, cut if it has more letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
