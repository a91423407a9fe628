"""Each table that has a picture gets one: small, the same each time, with every name in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots
from benchmarks.report import Table

pytestmark = pytest.mark.runs_in("test-all")

TURN = {"wall": 10.0, "commands": 5.0, "work": 20.0, "enqueue": 30.0}
POINT = {"target": 1000.0, "rate": 900.0, "cpu": 0.5, "peak": 20.0, "us": 1.5}
FAIR = ("16, 2", "64, 6", "256, 4")
SHAPES: dict[str, dict[str, Any]] = {
    "reads": {f"{kind} {streams}": [TURN] for kind in ("prior art", "shardq") for streams in (8, 64)},
    "pickup": {"bare XADD": [0.001, 0.002, 0.003], "shardq": [0.002, 0.004, 0.009]},
    "pickup-late": {"delayed": [0.01, 0.02], "lease ended": [0.03]},
    "controls-rate": {"delivered": [5.0, 5.1, 5.2, 5.4], "rate": 10.0, "burst": 1},
    "timing-replay": {mode: {name: [POINT] for name in plots.LINES} for mode in ("low", "high")},
    "timing-purgatory": {mode: {name: [POINT] for name in plots.LINES} for mode in ("low", "high")},
    "timing-rates-low": {"found": {name: [POINT, POINT] for name in plots.LINES}},
    "fairness-model-64-6": {name: {"20": [0.0, 9.0, None]} for name in plots.ORDERS},
    "service-numbers": {f"shardq, {order}": {"2": (0.1, 0.4), "64": (9.0, float("inf"))} for order in "abc"},
    **{
        f"fairness-{kind}": {shape: {name: [0.0, 9.0, None] for name in plots.ORDERS} for shape in FAIR}
        for kind in ("server", "moment")
    },
    "timing-rates-high": {"found": {name: [POINT, POINT] for name in plots.LINES}},
    **{name: {"found": {"shardq": {1: 5.0, 16: 90.0}}} for name in plots._KINDS if name.startswith("routing")},
}


@pytest.mark.parametrize("name", plots._KINDS)
def test_a_picture_of_each_kind(name: str, tmp_path: Path) -> None:
    data = SHAPES.get(name, {"shardq, one way": [TURN, TURN], "another": [TURN]})
    table = Table(name, f"The title of {name}", "the context", ("", "x"), [("a", "1")], data=data)
    path = plots.draw(table, tmp_path / "made")
    assert path == tmp_path / "made" / f"{name}.svg"
    drawn = path.read_text()
    assert f"The title of {name}" in drawn
    assert "the context" in drawn
    assert "shardq" in drawn or name == "pickup-late" or "window 1" in drawn
    assert len(drawn) < 100_000
    plots.draw(table, tmp_path / "again")
    assert (tmp_path / "again" / path.name).read_text() == drawn


def test_a_table_without_a_picture(tmp_path: Path) -> None:
    assert plots.draw(Table("driver", "", "", (), [], data={"a": 1}), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
