"""benchmarks/slow runs with shardq alone: nothing is fetched, and no figure is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import slow
from benchmarks.settings import Settings, place
from benchmarks.workers import environments
from benchmarks.workers.contenders import Contender
from tests.parts import LINUX

pytestmark = [LINUX.needed, pytest.mark.runs_in("test-all")]
TINY = Settings(rounds=1, seconds=1)


def test_a_table_for_each_length_one_of_single_jobs_and_one_of_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = environments.programs

    def own(contender: Contender) -> Path:
        if not contender.ours:
            raise environments.Missing("no index")
        return programs(contender)

    monkeypatch.setattr(environments, "programs", own)
    monkeypatch.setattr(slow, "LENGTHS", (0.02,))
    monkeypatch.setattr(slow, "WARM", 0.2)
    with place(TINY) as here:
        jobs, single, waits = slow.run(here)
    for table in (jobs, single, waits):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [row[0] for row in jobs.rows] == [slow.OUR, slow.ASYNC, slow.HUEY, slow.PEER]
    assert [row[0] for row in single.rows] == [slow.OUR, slow.HUEY, slow.PEER]
    assert [row[0] for row in waits.rows] == [slow.OUR, slow.ASYNC]
    assert jobs.rows[-1][1] == "left out: no index"
    for own_runs in (*jobs.data.values(), *single.data.values()):
        assert all(min(run["worker"], run["server"], run["scripts"], run["rate"]) > 0 for run in own_runs)
    assert all(min(of_one_run) > 0 for runs in waits.data.values() for of_one_run in runs)
