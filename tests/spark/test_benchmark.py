"""The benchmark's jobs do what they say, and what they measure is plausible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import pipelines
from benchmarks import spark as benchmark
from benchmarks.settings import Settings, place

pytestmark = [pytest.mark.timeout(240), pytest.mark.runs_in("test-all")]


def test_the_jobs_store_and_read_all_rows(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "session", lambda cores: spark)
    with place(Settings(messages=10, rounds=2, streams=8, per_shard=2, payload=40)) as here:
        field = benchmark.Field(here, max(benchmark.CORES), 2000)
        runs = {name: job() for name, job in field.jobs().items()}
        assert field.write(2000).rows == field.held() == 2000
    assert {name: run.rows for name, run in runs.items() if run.rows != 2000} == {
        "write: Spark, a call for each row": 2000 // benchmark.NAIVE
    }
    assert all(run.rate > 0 and min(run.python, run.jvm, run.server) >= 0 for run in runs.values())


def test_the_pipelines_work_on_what_their_tables_say(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pipelines, "session", lambda cores: spark)
    with place(Settings(messages=20)) as here:
        ground = pipelines.Ground(here, tmp_path)
        runs = {name: [job()] for name, job in ground.jobs().items()}
        tables = [pipelines.plan_table(here, runs, [ground.alone()]), pipelines.fairness_table(here, runs)]
    counts = {name: each[0].count for name, each in runs.items()}
    assert counts == {"assumed": 40_000, "named": 40_000, "fairness": 7_998, "count": 7_998}
    assert all(each[0].seconds > 0 and each[0].memory > 2**26 for each in runs.values())
    steps = runs["fairness"][0].steps
    assert list(steps) == [
        "counting events by window and shard key", "fair shares", "findings on jobs", "writing to files",
    ]  # fmt: skip
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert all(row[0] in table.markdown() for table in tables for row in table.rows)
