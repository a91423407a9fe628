"""A plan as a picture, with matplotlib (extra `plan`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shardq.extras import extra

with extra("plan", "a plot"):
    import matplotlib as mpl
    from matplotlib.figure import Figure

from shardq.planner.choice import Plan
from shardq.planner.odds import clean_odds

FORMATS: Final = (".png", ".svg")
MIN_SHARE: Final = 1e-9
"""Shares below this are not drawn."""

COLOURS: Final = ("tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan")


def save(chosen: Plan, others: Sequence[Plan], path: Path) -> None:
    """Draw *chosen* and the other plans of its frontier as a PNG or SVG file, by its suffix. OSError if that fails."""
    with mpl.rc_context({"svg.hashsalt": "shardq", "svg.fonttype": "none", "font.size": 8}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None  # the same plan gives the same file
        _figure(chosen, others).savefig(path, dpi=150, metadata=metadata)


def _figure(chosen: Plan, others: Sequence[Plan]) -> Figure:
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(
        f"{chosen.streams:,} streams, {chosen.streams_per_shard} per shard: {chosen.isolation:.2%} of the tenants keep "
        f"a clean stream while {chosen.noisy:,} flood"
    )
    _draw_floods(axes[0, 0], chosen, others)
    _draw_clean(axes[0, 1], chosen)
    _draw_overlap(axes[1, 0], chosen)
    _draw_lost(axes[1, 1], chosen)
    return figure


def _draw_floods(axes: Any, chosen: Plan, others: Sequence[Plan]) -> None:
    """The odds of no clean stream by the number of floods."""
    floods = sorted({max(1, round(chosen.noisy * step / 20)) for step in range(1, 61)})
    axes.set_prop_cycle(color=COLOURS)
    for each in sorted({*others, chosen}, key=lambda plan: plan.streams_per_shard):
        shares = [clean_odds(each.streams, each.streams_per_shard, flood)[0] for flood in floods]
        style = {"color": "tab:blue", "linewidth": 2.5} if each == chosen else {"linewidth": 0.9}
        axes.plot(floods, shares, label=f"{each.streams:,} streams, {each.streams_per_shard} per shard", **style)
    axes.axvline(chosen.noisy, color="gray", linewidth=0.8, linestyle=":")
    axes.set(yscale="log", ylim=(1e-6, 1.5), xlabel="noisy tenants at a time")
    axes.set_title("share of the tenants without a clean stream")
    axes.legend(fontsize=6, loc="lower right")


def _draw_clean(axes: Any, chosen: Plan) -> None:
    """How many clean streams the floods leave."""
    axes.bar(range(len(chosen.clean)), chosen.clean, color=["tab:red", *["tab:blue"] * chosen.streams_per_shard])
    axes.set(
        xlabel="streams of the shard without a flood",
        title=f"share of the tenants beside {chosen.noisy:,} noisy ones",
        xticks=range(len(chosen.clean)),
    )


def _draw_overlap(axes: Any, chosen: Plan) -> None:
    """How many streams two tenants share."""
    odds = chosen.odds.overlap
    axes.bar(range(len(odds)), [max(share, MIN_SHARE) for share in odds], color="tab:blue")
    axes.set(yscale="log", ylim=(MIN_SHARE, 2), xticks=range(len(odds)))
    axes.set(xlabel="streams that two tenants share", title="share of the pairs of tenants")


def _draw_lost(axes: Any, chosen: Plan) -> None:
    """Draw how many tenants the loss of streams hits."""
    lost = sorted({round(chosen.streams * step / 40) for step in range(41)})
    found = [chosen.lost(number) for number in lost]
    axes.plot(lost, [1 - odds[0] for odds in found], label="some of their streams")
    axes.plot(lost, [odds[-1] for odds in found], color="tab:red", label="all of their streams")
    axes.set(xlabel="streams lost", title="share of tenants that lose ...")
    axes.legend()
