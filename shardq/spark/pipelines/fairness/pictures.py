"""The fairness of a queue as a picture, with matplotlib (extra `plan`)."""

from __future__ import annotations

import io
from datetime import timedelta
from math import ceil, isfinite, log10
from typing import Any, Final

from shardq.extras import extra

with extra("plan", "a picture"):
    import matplotlib as mpl
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

from shardq.spark.pipelines.fairness.findings import FAIR, Findings, shown_text

COLOURS: Final = [f"C{number}" for number in range(9)]
DELAYS: Final = (("p50", "tab:blue"), ("p95", "tab:orange"), ("p99", "tab:red"))
LEAST_DELAY: Final = 1.0
"""In ms; shorter delays are drawn as this one, since a scale of powers has no 0."""

PLACES: Final[Any] = [["served", "index"], ["served", "waiting"], ["delays", "isolation"], ["delays", "isolation"]]


def png(found: Findings) -> bytes:
    """The picture, as a PNG file."""
    file = io.BytesIO()
    with mpl.rc_context({"font.size": 8}):
        drawn(found).savefig(file, format="png", dpi=130)
    return file.getvalue()


def drawn(found: Findings) -> Figure:
    """The picture: four panels over time, and the delays of quiet shard keys on the same scale as those of all."""
    figure = Figure(figsize=(11.5, 8), layout="constrained")
    axes = figure.subplot_mosaic(PLACES)
    figure.suptitle(f"{_plain(found.queue)}: windows of {found.window} s")
    _draw_service(axes["served"], found)
    _draw_index(axes["index"], found)
    _draw_waiting(axes["waiting"], found)
    _draw_delays(axes["delays"], found)
    _draw_isolation(axes["isolation"], found)
    axes["isolation"].sharey(axes["delays"])
    _in_powers(axes["delays"], axes["isolation"])
    return figure


def _over_time(axes: Any, found: Findings) -> list[Any]:
    """Prepare an axis of time, of all windows; return the windows' starts, and the end of the last."""
    end = found.end + timedelta(seconds=found.window)
    axes.set_xlim(found.begin, end)
    # Of four minutes it would draw five or more ticks, at most 8, and finds no whole number of seconds for that.
    locator: Any = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time, UTC")
    return [*(each["window"] for each in found.windows), end]


def _steps(values: list[Any]) -> list[Any]:
    """One value for each window, and the last once more, for its end."""
    return [*values, *values[-1:]] if values else [0]


def _beside(axes: Any) -> None:
    """Put the legend beside the panel, where it hides nothing."""
    axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_service(axes: Any, found: Findings) -> None:
    """The deliveries of each shard key, by window."""
    times = _over_time(axes, found)
    series = {_plain(key): [served.get(time, 0) for time in times[:-1]] for key, served in found.served.items()}
    named = [sum(column) for column in zip(*series.values(), strict=True)] if series else [0] * (len(times) - 1)
    series["others"] = [each["picked"] - part for each, part in zip(found.windows, named, strict=True)]
    axes.stackplot(times, *map(_steps, series.values()), labels=list(series), step="post", colors=COLOURS)
    axes.set(title="messages served, by shard key", ylabel="messages in a window")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    _beside(axes)


def _draw_index(axes: Any, found: Findings) -> None:
    """Jain's index by window."""
    times = _over_time(axes, found)
    jain = [float("nan") if each["jain"] is None else each["jain"] for each in found.windows]
    axes.plot(times, _steps(jain), color="tab:blue", drawstyle="steps-post", label="Jain's index")
    axes.axhline(FAIR, color="gray", linewidth=0.8, linestyle=":", label=f"fair: {FAIR:g}")
    axes.set(ylim=(0, 1.05), title="fairness: 1 if all got their fair share", ylabel="Jain's index")
    _beside(axes)


def _draw_waiting(axes: Any, found: Findings) -> None:
    """The messages that were left waiting at each window's end."""
    times = _over_time(axes, found)
    waiting = _steps([each["waiting"] for each in found.windows])
    axes.fill_between(times, waiting, step="post", color="tab:orange", alpha=0.5)
    axes.set(title="left waiting at the end of a window", ylabel="messages")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, max(1, *waiting) * 1.05)


def _in_powers(axes: Any, other: Any) -> None:
    """Use one scale of powers of ten for both, from a power to a power, with plain numbers at 1, 2 and 5 of each."""
    highest = max((axes.dataLim.y1, other.dataLim.y1, LEAST_DELAY), key=lambda top: top if isfinite(top) else 0)
    axes.set_ylim(0.8 * LEAST_DELAY, 10 ** max(1, ceil(log10(highest))))  # before the scale: without data it would warn
    axes.set_yscale("log")
    for each in (axes, other):
        each.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=40))
        each.yaxis.set_major_formatter("{x:,.0f}")
        each.yaxis.set_minor_formatter(NullFormatter())
        each.grid(axis="y", linewidth=0.4, alpha=0.5)
        each.set_ylabel("ms")
        _beside(each)


def _draw_delays(axes: Any, found: Findings) -> None:
    """Pick-up delays by window."""
    times = _over_time(axes, found)
    for name, colour in DELAYS:
        values = [float("nan") if each[name] is None else max(each[name], LEAST_DELAY) for each in found.windows]
        axes.plot(times, _steps(values), color=colour, drawstyle="steps-post", label=name)
    axes.set_title("pick-up delay of all messages")


def _draw_isolation(axes: Any, found: Findings) -> None:
    """Pick-up delays of quiet shard keys by number of clean streams; if there are none, those of the busiest keys."""
    clean = [each for each in found.around.clean if each.p95 is not None]
    labels = [f"{each.clean} clean\n{each.keys:,} keys" for each in clean]
    rows: list[dict[str, Any]] = [{"p50": each.p50, "p95": each.p95, "p99": each.p99} for each in clean]
    title, below = "pick-up delay of quiet shard keys", "streams without a noisy shard key"
    if not clean:
        busiest = [each for each in found.top if each["p95"] is not None][:8]
        labels = [_plain(shown_text(each["shard_key"])) for each in busiest]
        rows, title, below = [dict(each) for each in busiest], "pick-up delay of the busiest shard keys", "shard key"
    for at, (name, colour) in enumerate(DELAYS):
        places = [place + 0.25 * (at - 1) for place in range(len(rows))]
        axes.bar(places, [max(row[name], LEAST_DELAY) for row in rows], 0.25, color=colour, label=name)
    axes.set(title=title, xlabel=below, xlim=(-0.6, max(len(rows), 3) - 0.4))
    axes.set_xticks(range(len(rows)), labels, rotation=0 if clean else 30)


def _plain(text: str) -> str:
    """A label: matplotlib reads `$` as mathematics, and leaves out what begins with `_`."""
    short = text if len(text) <= 24 else text[:21] + "..."
    return "\u200a" + short.replace("$", r"\$")
