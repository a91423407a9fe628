"""Tables as pictures, with matplotlib (the extra `bench`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Table


def draw(table: Table, folder: Path) -> Path | None:
    """Write one picture of *table*; None for a table that has none."""
    how = _KINDS.get(table.name)
    if how is None or not table.data:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "shardq", "figure.constrained_layout.use": True}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    how(axes, table)
    axes.set_title(f"{table.title}\n{table.context}", fontsize=7, loc="left")
    path = folder / f"{table.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _bars(axes: Any, table: Table) -> None:
    names = list(table.data)
    rates = [median(1e6 / turn["wall"] for turn in table.data[name]) for name in names]
    axes.barh(names[::-1], rates[::-1], color=["tab:blue" if "shardq" in name else "lightgray" for name in names[::-1]])
    axes.set_xscale("log")
    axes.set_xlabel("messages/s")


def _lines(axes: Any, table: Table) -> None:
    for kind in ("prior art", "shardq"):
        points = {int(name.rpartition(" ")[2]): own for name, own in table.data.items() if name.startswith(kind)}
        axes.plot(list(points), [median(turn["commands"] for turn in own) for own in points.values()], "o-", label=kind)
    axes.set(xscale="log", yscale="log", xlabel="streams", ylabel="server time of a read, µs")
    axes.legend()


def _steps(axes: Any, table: Table) -> None:
    for name, values in table.data.items():
        ordered = sorted(values)
        left = [1 - at / len(ordered) for at in range(len(ordered))]
        axes.step([value * 1e3 for value in ordered], left, label=name)
    axes.set(xscale="log", yscale="log", xlabel="ms", ylabel="share of messages that took longer")
    axes.legend()


def _waits(axes: Any, table: Table) -> None:
    """Beside 20 floods; a line that ends early is one whose rest is never handed out."""
    for name, by in table.data.items():
        quantiles = by["20"]
        seen = [(max(wait, 0.5), 1 - at / len(quantiles)) for at, wait in enumerate(quantiles) if wait is not None]
        axes.step([wait for wait, _ in seen], [share for _, share in seen], label=name)
    axes.set(xscale="log", yscale="log", xlabel="dequeues", ylabel="share of quiet messages that wait longer")
    axes.legend(fontsize=7)


_KINDS: dict[str, Callable[[Any, Table], None]] = {
    "throughput-write": _bars,
    "throughput-read": _bars,
    "driver": _bars,
    "reads": _lines,
    "fairness-model-16-2": _waits,
    "fairness-model-64-6": _waits,
    "fairness-model-256-4": _waits,
    "pickup": _steps,
    "pickup-late": _steps,
}
