"""The benchmark runs, tiny and in this process, so that it never rots; its figures mean nothing here."""

from __future__ import annotations

import pytest

from benchmarks import routing
from benchmarks.timers import process
from benchmarks.topics import sizes, threads

TINY = routing.Size(counts=(300,), rounds=1, lookups=100, each=20)


@pytest.mark.runs_in("test-all")
def test_each_table_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sizes, threads):
        monkeypatch.setattr(module, "in_process", process.here)
    tables = routing.tables(TINY)
    assert len(tables) == 4
    for table in tables:
        assert table.title in table.text()
        assert len({len(row) for row in (table.columns, *table.rows)}) == 1
