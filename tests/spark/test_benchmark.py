"""The benchmark's jobs do what they say, and what they measure is plausible."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import spark as benchmark
from benchmarks.settings import Settings, place

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]


def test_the_jobs_store_and_read_all_rows(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "session", lambda cores: spark)
    with place(Settings(messages=10, rounds=2, streams=8, per_shard=2, payload=40)) as here:
        field = benchmark.Field(here, max(benchmark.CORES), 2000)
        turns = {name: job() for name, job in field.jobs().items()}
        assert field.write(2000).rows == field.held() == 2000
    assert {name: turn.rows for name, turn in turns.items() if turn.rows != 2000} == {
        "write: Spark, a call for each row": 2000 // benchmark.NAIVE
    }
    assert all(turn.rate > 0 and min(turn.python, turn.jvm, turn.server) >= 0 for turn in turns.values())
