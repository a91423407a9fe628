"""A comparison as a picture, with matplotlib (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from shardq.extras import extra

with extra("plot", "a plot"):
    import matplotlib as mpl
    from matplotlib.figure import Figure

from shardq.whatif.comparison import Comparison
from shardq.whatif.outcome import Projection

FORMATS: Final = (".png", ".svg")
MIN_WAIT: Final = 0.001
"""In seconds; shorter waits are drawn as this one, since a scale of powers has no 0."""

WAITS: Final = (("p50", "tab:blue"), ("p99", "tab:orange"), ("quiet p99", "tab:green"), ("worst p99", "tab:red"))
SECONDS_OF_HOUR: Final = 3_600


def save(found: Comparison, path: Path, *, within: float, objective: float) -> None:
    """Draw the outcomes as a PNG or SVG file, by its suffix. OSError if that fails.

    *within* and *objective* are drawn as lines: the longest wait that is in time, and the share that shall be.
    """
    with mpl.rc_context({"svg.hashsalt": "shardq", "svg.fonttype": "none", "font.size": 8}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None  # the same outcomes give the same file
        _figure(found, within, objective).savefig(path, dpi=150, metadata=metadata)


def _figure(found: Comparison, within: float, objective: float) -> Figure:
    outcomes = found.outcomes
    figure = Figure(figsize=(9, 1.6 + 0.55 * len(outcomes)), layout="constrained")
    waits, shares, hours = figure.subplots(1, 3, sharey=True, width_ratios=(3, 1, 1))
    _draw_waits(waits, outcomes, within)
    _draw_shares(shares, outcomes, objective)
    _draw_hours(hours, outcomes)
    waits.set_yticks(range(len(outcomes)), [_plain(each.name) for each in outcomes])
    waits.invert_yaxis()
    return figure


def _draw_waits(axes: Any, outcomes: list[Projection], within: float) -> None:
    """A point for each percentile of the waits."""
    for name, colour in WAITS:
        values = [max(MIN_WAIT, _wait(each, name)) for each in outcomes]
        axes.plot(values, range(len(outcomes)), "o", color=colour, label=name, markersize=5)
    axes.axvline(within, color="gray", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel="seconds", title="waits for the first delivery")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(fontsize=6)


def _draw_shares(axes: Any, outcomes: list[Projection], objective: float) -> None:
    """The share of the jobs in time."""
    axes.barh(range(len(outcomes)), [100 * each.in_time for each in outcomes], color="tab:blue", height=0.5)
    axes.axvline(100 * objective, color="gray", linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 101), xlabel="% of the jobs", title="in time")


def _draw_hours(axes: Any, outcomes: list[Projection]) -> None:
    """The slot hours, and how many of them were busy."""
    hours = [each.slot_seconds / SECONDS_OF_HOUR for each in outcomes]
    busy = [hour * each.busy for hour, each in zip(hours, outcomes, strict=True)]
    axes.barh(range(len(outcomes)), hours, color="lightgray", height=0.5, label="idle")
    axes.barh(range(len(outcomes)), busy, color="tab:green", height=0.5, label="busy")
    axes.set(xlabel="hours", title="slot hours")
    axes.legend(fontsize=6)


def _wait(each: Projection, name: str) -> float:
    found = {
        "p50": each.all.p50, "p99": each.all.p99, "quiet p99": each.quiet.p99, "worst p99": each.worst.p99,
    }[name]  # fmt: skip
    return found or 0.0


def _plain(text: str) -> str:
    """A text as it is: matplotlib takes what stands between two $ for a formula."""
    return text.replace("$", r"\\$")
