"""Each table that has a picture gets one: small, the same each time, with every name in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots
from benchmarks.report import Table

pytestmark = pytest.mark.runs_in("test-all")

TURN = {"wall": 10.0, "commands": 5.0, "work": 20.0, "enqueue": 30.0}
DRAWN = {"pods": [(0.0, 0), (6.0, 3)], "waits": [(6.1, 0.0), (8.0, 90.0)], "p99": 90.0, "hours": 54.0}
FAIR = ("16, 2", "64, 6", "256, 4")
SHAPES: dict[str, dict[str, Any]] = {
    "day": {"shardq, load": DRAWN, "len()": DRAWN, "XLEN": DRAWN, "CPU": DRAWN, "events": [(6.0, "three come due")]},
    "reads": {f"{kind} {streams}": [TURN] for kind in ("prior art", "shardq") for streams in (8, 64)},
    "pickup": {"bare XADD": [0.001, 0.002, 0.003], "shardq": [0.002, 0.004, 0.009]},
    "timing-replay": {mode: {name: [{"us": 1.5}] for name in ("shardq", "a heap")} for mode in ("low", "high")},
    "fairness-model-64-6": {name: {"20": [0.0, 9.0, None]} for name in plots.ORDERS},
    "service-numbers": {f"shardq, {order}": {"2": (0.1, 0.4), "64": (9.0, float("inf"))} for order in "abc"},
    "fairness-server": {shape: {name: [0.0, 9.0, None] for name in plots.ORDERS} for shape in FAIR},
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
    assert "shardq" in drawn or "window 1" in drawn
    assert len(drawn) < 100_000
    plots.draw(table, tmp_path / "again")
    assert (tmp_path / "again" / path.name).read_text() == drawn


def test_a_table_without_a_picture(tmp_path: Path) -> None:
    assert plots.draw(Table("flow", "", "", (), [], data={"a": 1}), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
