"""The benchmark of README.md's picture runs as README.md calls it: without a path."""

from __future__ import annotations

import re

import pytest

from benchmarks import flood

pytestmark = pytest.mark.runs_in("test-all")


def test_without_a_path_it_prints_how_long_the_quiet_tenants_waited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flood, "FLOOD", 20)
    monkeypatch.setattr(flood, "FLOODS_AT", 0.0)
    monkeypatch.setattr(flood, "LASTS", 3.0)  # seconds: longer than a machine stands still
    flood.main([])
    line = r"{}: \d+ jobs, p50 [\d.]+ m?s, p99 [\d.]+ m?s\n"
    assert re.fullmatch(line.format("a Redis stream") + line.format("shardq"), capsys.readouterr().out)
