"""The benchmark runs, tiny and in this process, so that it never rots; its figures mean nothing here."""

from __future__ import annotations

import pytest

from benchmarks import timing
from benchmarks.timers import blocked, costs, leases, process, rates, waits


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocked, costs, leases, rates, waits):
        monkeypatch.setattr(module, "in_process", process.here)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", timing.TABLES)
def test_each_table_is_made(name: str) -> None:
    for table in timing.TABLES[name](timing.tiny(400)):
        assert table.title in table.text()
        assert len({len(row) for row in (table.columns, *table.rows)}) == 1


@pytest.mark.runs_in("test-all")
def test_a_measurement_in_a_process_of_its_own() -> None:
    found = process.in_process("benchmarks.timers.replay", "heapq + Lock", "low", 400, 100_000.0)
    assert found["us"] > 0
