"""The picture of a day: the pods that each scaler wanted, one above the other, and how long messages waited."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.plots import GREYS, INK, OURS
from benchmarks.report import Table

SHOWN: Final = {
    "shardq, load": (OURS, "-", "shardq, by load"),
    "len()": (GREYS[0], "-", "len(), or XLEN of a plain stream"),
    "XLEN": (GREYS[1], "-", "XLEN of the queue's streams"),
    "CPU": (GREYS[1], ":", "CPU"),
}
"""Colour, line and name of the scalers that are drawn."""
LEGEND: Final = {"shardq, load": "shardq", "len()": "len()", "XLEN": "XLEN", "CPU": "CPU"}
TICKS: Final = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h"}


def fill(panel: Any, table: Table) -> None:
    """Draw *table* where the empty *panel* is."""
    figure = panel.figure
    panel.remove()
    names = [name for name in SHOWN if name in table.data]
    rows = figure.subplots(len(names) + 1, 1, sharex=True, height_ratios=[1.0] * len(names) + [2.2])
    last = max(at for name in names for at, _ in (*table.data[name]["pods"], *table.data[name]["waits"]))
    end = 24.0 if last > 12 else last
    most = max(pods for name in names for _, pods in table.data[name]["pods"])
    for axes, name in zip(rows, names, strict=False):
        _pods(axes, table.data[name], SHOWN[name], end, most)
    _waits(rows[-1], table.data, names, end)
    for axes in rows:
        for at, _ in table.data["events"]:
            axes.axvline(at, color=INK, linewidth=0.5, linestyle=(0, (2, 3)))
    _events(rows[0], table.data["events"])
    rows[len(names) // 2].set_ylabel("pods wanted", loc="top")


def _pods(axes: Any, found: Any, style: tuple[str, str, str], end: float, most: int) -> None:
    colour, _, name = style
    times = [at for at, _ in found["pods"]] + [end]
    pods = [number for _, number in found["pods"]]
    axes.stairs(pods, times, baseline=0, fill=True, color=colour)
    said = f"{name}: {found['hours']:,.0f} worker-hours, 99 of 100 waited {found['p99']:,.0f} s at most"
    ink = OURS if colour == OURS else GREYS[0]  # light greys are too pale for text
    axes.set_title(said, loc="left", color=ink, fontsize=8, fontweight="bold", pad=3)
    axes.set(ylim=(0, most * 1.05), xlim=(0, end))
    axes.set_yticks([0, most])
    axes.tick_params(axis="x", length=0)


def _waits(axes: Any, data: Any, names: list[str], end: float) -> None:
    """How long messages waited that were written at about the same time."""
    for name in reversed(names):
        colour, line, _ = SHOWN[name]
        own = data[name]["waits"]
        # Where nothing was written for a while, the line has a gap.
        times, waits = [], []
        for (at, wait), before in zip(own, [own[0], *own], strict=False):
            if at - before[0] > 0.3:
                times.append(at)
                waits.append(float("nan"))
            times.append(at)
            waits.append(max(1.0, wait))
        axes.plot(times, waits, "." + line, color=colour, label=LEGEND[name], markersize=3)
    axes.set(yscale="log", ylim=(0.9, 7200), xlim=(0, end), ylabel="99 of 100 waited\nat most")
    axes.set_yticks(list(TICKS), list(TICKS.values()))
    axes.minorticks_off()
    axes.grid(axis="y")
    step = 3 if end > 12 else 0.5
    hours = [step * number for number in range(int(end / step) + 1)]
    axes.set_xticks(hours, [f"{int(at)}:{round(at % 1 * 60):02}" for at in hours])
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", fontsize=8, handlelength=1.6)
    axes.set_title("what was written in each quarter of an hour", loc="left", fontsize=8, fontweight="bold", pad=3)


def _events(axes: Any, events: list[Any]) -> None:
    """Name what happens, above all panels, in two lines of text that take turns."""
    for number, (at, what) in enumerate(events):
        axes.annotate(
            what,
            (at, 1.32 + 0.26 * (number % 2)),
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color=INK,
            ha="center",
        )
