"""The picture of a fairness report: every axis says what it shows, and what is compared has one scale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shardq.spark.pipelines.fairness.findings import Findings
from shardq.spark.pipelines.fairness.neighbours import Clean, Neighbourhood
from shardq.spark.pipelines.fairness.pictures import drawn

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def found(windows: int, clean: int, longest: float) -> Findings:
    """Findings with so many windows, and quiet shard keys by so many numbers of clean streams."""
    times = [BEGIN + timedelta(seconds=60 * at) for at in range(windows)]
    delays = {"p50": longest / 100, "p95": longest / 2, "p99": longest}
    rows: list[Any] = [
        {"window": time, "picked": 100, "waiting": 7, "jain": None if at == 1 else 0.8} | delays
        for at, time in enumerate(times)
    ]
    top: list[Any] = [{"shard_key": f"t-{at}"} | delays for at in range(3)]
    served = {each["shard_key"]: dict.fromkeys(times, 10) for each in top}
    quiet = tuple(Clean(at, 10, 10, longest / 30, longest / 3, longest * 3) for at in range(clean))
    end = times[-1] if times else BEGIN
    return Findings("jobs", 60, BEGIN, end, {}, rows, top, served, Neighbourhood((), quiet))


@pytest.mark.runs_in("test-all")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("clean", [0, 3])
@pytest.mark.parametrize("longest", [0.1, 40_000.0])
@pytest.mark.parametrize("windows", [0, 1, 40])
def test_a_picture_can_be_read(windows: int, clean: int, longest: float) -> None:
    figure = drawn(found(windows, clean, longest))
    figure.draw_without_rendering()
    panels: dict[str, Any] = {each.get_title(): each for each in figure.axes}
    assert len(panels) == 5
    for axes in panels.values():
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        if legend := axes.get_legend():
            assert legend.get_window_extent().x0 >= axes.get_window_extent().x1
    delays, others = (each for title, each in panels.items() if title.startswith("pick-up delay"))
    assert delays.get_ylim() == others.get_ylim()
    low, high = delays.get_ylim()
    told = {label.get_text() for place, label in _ticks(delays) if low <= place <= high}
    assert told >= {"1", "2", "5", "10"}
    assert told <= {f"{step * 10**power:,}" for step in (1, 2, 5) for power in range(7)}


def _ticks(axes: Any) -> list[tuple[float, Any]]:
    places = [*axes.get_yticks(), *axes.get_yticks(minor=True)]
    labels = [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]
    return [(place, label) for place, label in zip(places, labels, strict=True) if label.get_text()]
