"""The benchmark runs, tiny and in this process, so that it never rots; its figures mean nothing here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.report import Table
from benchmarks.timers import leases, process, replay
from benchmarks.timers.size import Size

pytestmark = pytest.mark.runs_in("test-all")


@pytest.mark.parametrize("make", [replay.replay, leases.leases])
def test_each_table_is_made(make: Callable[[Size], Table], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (leases, replay):
        monkeypatch.setattr(module, "in_process", process.here)
    table = make(Size(requests=400, rounds=1))
    assert table.title in table.text()
    assert len({len(row) for row in (table.columns, *table.rows)}) == 1


def test_a_measurement_in_a_process_of_its_own() -> None:
    found = process.in_process("benchmarks.timers.replay", "heapq + Lock", "low", 400, 100_000.0)
    assert found["us"] > 0
