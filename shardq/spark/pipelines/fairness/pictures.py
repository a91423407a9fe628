"""The fairness of a queue as a picture, with matplotlib (extra `plan`)."""

from __future__ import annotations

import io
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from shardq.spark.pipelines.fairness.findings import FAIR, Findings

COLOURS: Final = [f"C{number}" for number in range(9)]
DELAYS: Final = (("p50", "tab:blue"), ("p95", "tab:orange"), ("p99", "tab:red"))


def png(found: Findings) -> bytes:
    """The picture, as a PNG file."""
    file = io.BytesIO()
    with mpl.rc_context({"font.size": 8}):
        _figure(found).savefig(file, format="png", dpi=130)
    return file.getvalue()


def _figure(found: Findings) -> Figure:
    figure = Figure(figsize=(10.5, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(f"{found.queue}: windows of {found.window} s")
    _draw_service(axes[0, 0], found)
    _draw_index(axes[0, 1], found)
    _draw_delays(axes[1, 0], found)
    _draw_isolation(axes[1, 1], found)
    return figure


def _draw_service(axes: Any, found: Findings) -> None:
    """The deliveries of each shard key, by window."""
    times = [each["window"] for each in found.windows]
    series = {_plain(key): [served.get(time, 0) for time in times] for key, served in found.served.items()}
    named = [sum(column) for column in zip(*series.values(), strict=True)] if series else [0] * len(times)
    series["others"] = [each["picked"] - part for each, part in zip(found.windows, named, strict=True)]
    axes.stackplot(times, *series.values(), labels=list(series), step="post", colors=COLOURS)
    axes.set_title("messages served")
    axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))  # beside the picture: it hides nothing there
    axes.tick_params(axis="x", labelrotation=20)


def _draw_index(axes: Any, found: Findings) -> None:
    """Jain's index, and the messages that were left waiting, by window."""
    times = [each["window"] for each in found.windows]
    jain = [float("nan") if each["jain"] is None else each["jain"] for each in found.windows]
    axes.plot(times, jain, color="tab:blue", marker=".", label="Jain's index")
    axes.axhline(FAIR, color="gray", linewidth=0.8, linestyle=":")
    axes.set(ylim=(0, 1.05), title="fairness (1: all got their fair share), and what was left waiting")
    axes.tick_params(axis="x", labelrotation=20)
    waiting = axes.twinx()
    waiting.fill_between(times, [each["waiting"] for each in found.windows], color="tab:orange", alpha=0.25)
    waiting.set_ylim(bottom=0)


def _in_powers(axes: Any) -> None:
    """Use a scale of powers of ten with plain numbers; numbers between the powers only if there are few powers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def _draw_delays(axes: Any, found: Findings) -> None:
    """Pick-up delays by window."""
    times = [each["window"] for each in found.windows]
    for name, colour in DELAYS:
        values = [float("nan") if each[name] is None else max(each[name], 1.0) for each in found.windows]
        axes.plot(times, values, color=colour, marker=".", label=name)
    axes.set_title("pick-up delay of all messages, ms")
    _in_powers(axes)
    axes.legend(fontsize=7)
    axes.tick_params(axis="x", labelrotation=20)


def _draw_isolation(axes: Any, found: Findings) -> None:
    """Pick-up delays of quiet shard keys by number of clean streams; if there are none, those of the busiest keys."""
    clean = [each for each in found.around.clean if each.p95 is not None]
    labels = [f"{each.clean} clean\n{each.keys:,} keys" for each in clean]
    rows: list[dict[str, Any]] = [{"p50": each.p50, "p95": each.p95, "p99": each.p99} for each in clean]
    title = "pick-up delay of quiet shard keys, by streams without a noisy one, ms"
    if not clean:
        busiest = [each for each in found.top if each["p95"] is not None][:8]
        labels = [_plain(str(key)) for key, _ in zip(found.served, busiest, strict=False)]
        rows, title = [dict(each) for each in busiest], "pick-up delay of the busiest shard keys, ms"
    for at, (name, colour) in enumerate(DELAYS):
        places = [place + 0.25 * (at - 1) for place in range(len(rows))]
        axes.bar(places, [max(row[name], 1.0) for row in rows], 0.25, color=colour, label=name)
    axes.set_title(title)
    _in_powers(axes)
    axes.set_xticks(range(len(rows)), labels, rotation=0 if clean else 30)
    axes.legend(fontsize=7)


def _plain(text: str) -> str:
    """A label: matplotlib reads `$` as mathematics, and leaves out what begins with `_`."""
    short = text if len(text) <= 24 else text[:21] + "..."
    return "\u200a" + short.replace("$", r"\$")
