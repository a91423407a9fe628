"""Tables as pictures, with matplotlib (the extra `bench`): ours in one colour, the references in greys.

`python -m benchmarks.plots NUMBERS PICTURES` draws the tables again that `--json NUMBERS` kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

from benchmarks.report import Table, percentile

OURS, LIGHT, GREYS, INK = "#c2410c", "#f0a884", ("#4b5563", "#9ca3af", "#c7ccd4"), "#374151"
STYLE: Any = {
    "svg.hashsalt": "shardq",
    "svg.fonttype": "none",  # text stays text: a tenth of the size
    "figure.constrained_layout.use": True,
    "font.family": ["sans-serif"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GREYS[1],
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.5,
}


def draw(table: Table, folder: Path, kind: str = "svg") -> Path | None:
    """Write one picture of *table*; None for a table that has none."""
    how = _KINDS.get(table.name.partition("@")[0])  # what follows says where it was measured
    if how is None or not table.data:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels, height, fill = how
    with mpl.rc_context(STYLE):
        figure, axes = pyplot.subplots(1, panels, figsize=(8, height), squeeze=False)
        fill(list(axes[0]), table)
        space = "\n" if panels == 3 else ""  # for a legend of all panels
        figure.suptitle(table.title + space, x=0.01, ha="left", fontsize=10, fontweight="bold")
        figure.supxlabel("\n".join(wrap(table.context, 130)), x=0.01, ha="left", fontsize=7, color=GREYS[0])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{table.name}.{kind}"
        figure.savefig(path, metadata={"Date": None} if kind == "svg" else None, dpi=110)
        pyplot.close(figure)
    return path


def _colour(name: str, at: int = 0) -> str:
    return OURS if name.startswith("shardq") else GREYS[at % len(GREYS)]


def _bars(axes: Any, ranges: Mapping[str, Sequence[float]], unit: str, order: Sequence[str] = ()) -> list[str]:
    """The medians as bars with their values, the ranges as thin lines; by `order`, else the highest first."""
    ordered = list(order) or sorted(ranges, key=lambda name: median(ranges[name]))
    for at, name in enumerate(ordered):
        value, low, high = median(ranges[name]), min(ranges[name]), max(ranges[name])
        axes.barh(at, value, color=OURS if name.startswith("shardq") else GREYS[2], height=0.66)
        axes.plot([low, high], [at, at], color=INK, linewidth=0.8)
        shown = f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
        axes.annotate(shown, (max(value, high), at), (5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(ordered)), ordered if not order else [])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(0, max(map(max, ranges.values())) * 1.2)
    axes.set_xlabel(unit)
    return ordered


def _workers(panels: list[Any], table: Table) -> None:
    """Jobs per second, worked off and enqueued."""
    order: list[str] = []
    for axes, what, unit in zip(panels, ("work", "enqueue"), ("worked off, jobs/s", "enqueued, jobs/s"), strict=True):
        ranges = {name: [1e6 / run[what] for run in own] for name, own in table.data.items()}
        order = _bars(axes, ranges, unit, order)


def _streams(panels: list[Any], table: Table) -> None:
    axes = panels[0]
    for kind in ("prior art", "shardq"):
        points = {int(name.rpartition(" ")[2]): own for name, own in table.data.items() if name.startswith(kind)}
        values = [median(run["commands"] for run in own) for own in points.values()]
        axes.plot(list(points), values, "o-", color=_colour(kind))
        _name(axes, kind, list(points)[-1], values[-1], _colour(kind))
    axes.set(xscale="log", yscale="log", xlabel="streams, of which one is busy", ylabel="server time of a read, µs")
    axes.set_xticks(list(points), [f"{number:,}" for number in points])
    axes.yaxis.set_major_locator(_ticks())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.grid()
    axes.margins(x=0.12)


def _name(axes: Any, name: str, x: float, y: float, colour: str) -> None:
    """A line's name, at its end."""
    axes.annotate(name, (x, y), (5, 0), textcoords="offset points", va="center", color=colour, fontsize=8)


def _slowest(panels: list[Any], table: Table) -> None:
    """The share of messages that took longer: the further left, the better."""
    axes = panels[0]
    most = max(map(len, table.data.values()))
    ours = iter(("-", "--", ":"))
    for at, (name, values) in enumerate(table.data.items()):
        line = next(ours) if name.startswith("shardq") else "-"
        ordered = sorted(value * 1e3 for value in values)
        longer = [1 - (place + 1) / len(ordered) for place in range(len(ordered))]
        axes.step([ordered[0], *ordered], [1, *longer], line, where="post", color=_colour(name, at), label=name)
        axes.plot([percentile(ordered, 0.99)], [0.01], "o", color=_colour(name, at))
    axes.set(xscale="log", yscale="log", xlabel="ms", ylabel="share that took longer", ylim=(0.8 / most, 1.1))
    axes.xaxis.set_major_locator(_ticks())
    axes.xaxis.set_major_formatter("{x:g}")
    shares = {1: "all", 0.1: "10 %", 0.01: "1 %", 0.001: "0.1 %"}
    shares = {share: shown for share, shown in shares.items() if share * most > 0.8}
    axes.set_yticks(list(shares), list(shares.values()))
    axes.minorticks_off()
    axes.grid()
    axes.legend(loc="lower left", fontsize=8)


def _ticks() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1, 2, 5), numticks=20)


def _requests(panels: list[Any], table: Table) -> None:
    """CPU per request, low and high rate of timeouts."""
    order: list[str] = []
    for axes, (mode, found) in zip(panels, table.data.items(), strict=True):
        ranges = {name: [each["us"] for each in own] for name, own in found.items()}
        order = _bars(axes, ranges, "µs of CPU", order)
        axes.set_title(f"{mode} rate of timeouts", fontsize=8, loc="left")


ORDERS: dict[str, tuple[str, str]] = {
    "plain FIFO": (GREYS[2], "-"),
    "shuffle sharding alone": (GREYS[1], "-"),
    "round robin inside each stream": (GREYS[1], "--"),
    "ideal fair queueing": (GREYS[0], "-"),
    "window 1": (OURS, "-"),
    "window 2": (OURS, "--"),
    "window 6": (LIGHT, "-"),
}


def _waits(panels: list[Any], table: Table) -> None:
    """The share of quiet messages that waited longer beside 20 floods; a line that ends high is never served."""
    _draw_waits(panels[0], {name: by["20"] for name, by in table.data.items()})
    panels[0].legend(loc="upper right", fontsize=8)


def _served(panels: list[Any], table: Table) -> None:
    """The same of the real queue, for each number of streams."""
    for axes, (shape, orders) in zip(panels, table.data.items(), strict=True):
        _draw_waits(axes, orders)
        axes.set_title("{} streams, {} per shard".format(*shape.split(", ")), fontsize=8, loc="left")
    lines = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(*lines, loc="upper left", bbox_to_anchor=(0, 0.94), ncols=len(ORDERS), fontsize=8)


def _draw_waits(axes: Any, orders: Mapping[str, Sequence[float | None]]) -> None:
    for name in (each for each in ORDERS if each in orders):
        colour, line = ORDERS[name]
        quantiles = orders[name]
        seen = [(max(wait, 1), 1 - at / len(quantiles)) for at, wait in enumerate(quantiles) if wait is not None]
        axes.step([wait for wait, _ in seen], [share for _, share in seen], line, color=colour, label=name)
    axes.set(xscale="log", xlabel="dequeues before one's own", ylabel="share that waited longer")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(0, 1.02)
    axes.grid()


def _numbers(panels: list[Any], table: Table) -> None:
    """Within what half of the short jobs began, and 99 of a hundred, by the number of tenants with slow jobs."""
    axes = panels[0]
    for name, colour in zip(table.data, (GREYS[1], LIGHT, OURS), strict=True):
        points = table.data[name]
        numbers = [int(number) for number in points]
        for at, line in enumerate(("-", "--")):
            values = [min(each[at], 20.0) for each in points.values()]
            axes.plot(numbers, values, "o" + line, color=colour, label=name if at == 0 else f"{name}, 99 %")
    axes.set(xscale="log", yscale="log", xlabel="tenants with slow jobs", ylabel="S; 20: for ever", ylim=(0.02, 25))
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid()
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _day(panels: list[Any], table: Table) -> None:
    from benchmarks.day.picture import fill

    fill(panels[0], table)


_KINDS: dict[str, tuple[int, float, Callable[[list[Any], Table], None]]] = {
    "reads": (1, 3.2, _streams),
    "pickup": (1, 3.4, _slowest),
    "fairness-model-64-6": (1, 3.2, _waits),
    "fairness-server": (3, 3.0, _served),
    "service-numbers": (1, 3.2, _numbers),
    "worker": (2, 3.4, _workers),
    "day": (1, 6.4, _day),
    "timing-replay": (2, 2.5, _requests),
}
"""By the name of a table: how many panels, how many inches high, and who draws them."""


def main(numbers: Path, pictures: Path, kind: str = "svg") -> None:
    for path in sorted(numbers.glob("*.json")):
        told = json.loads(path.read_text())
        table = Table(told["name"], told["title"], told["context"], told["columns"], told["rows"], data=told["data"])
        if drawn := draw(table, pictures, kind):
            print(drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
