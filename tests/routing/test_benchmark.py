"""The benchmark runs, tiny and in this process, so that it never rots; its figures mean nothing here."""

from __future__ import annotations

import pytest

from benchmarks import routing
from benchmarks.timers import process
from benchmarks.topics import shapes, sizes, threads


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", routing.TABLES)
def test_each_table_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS", (1, 2, 16))
    for module in (shapes, sizes, threads):
        monkeypatch.setattr(module, "in_process", process.here)
    for table in routing.TABLES[name](routing.TINY):
        assert table.title in table.text()
        assert len({len(row) for row in (table.columns, *table.rows)}) == 1
