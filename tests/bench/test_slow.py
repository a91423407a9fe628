"""benchmarks/slow runs with shardq alone: nothing is fetched, and no figure is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import slow
from benchmarks.settings import Settings, place
from benchmarks.workers import environments
from benchmarks.workers.contenders import OURS, Contender
from tests.parts import LINUX

pytestmark = [LINUX.needed, pytest.mark.runs_in("test-all")]
TINY = Settings(rounds=1, seconds=1)


@pytest.fixture(autouse=True)
def ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = environments.programs

    def own(contender: Contender) -> Path:
        if not contender.ours:
            raise environments.Missing("no index")
        return programs(contender)

    monkeypatch.setattr(environments, "programs", own)
    monkeypatch.setattr(slow, "LENGTHS", (0.02,))
    monkeypatch.setattr(slow, "WARM", 0.2)


def test_a_table_for_each_length_one_of_processes_one_of_single_jobs_and_one_of_waits() -> None:
    with place(TINY) as here:
        jobs, several, single, waits = slow.run(here)
    peers = [slow.HUEY, slow.DRAMATIQ, slow.PEER]
    for table in (jobs, several, single, waits):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    for table in (jobs, several):
        assert [row[0] for row in table.rows] == [slow.OUR, slow.ASYNC, *peers]
    assert [row[0] for row in single.rows] == [slow.OUR, *peers]
    assert [row[0] for row in waits.rows] == [slow.OUR, slow.ASYNC]
    assert jobs.rows[-1][1] == "left out: no index"
    for own_runs in (*jobs.data.values(), *several.data.values(), *single.data.values()):
        assert all(min(run["worker"], run["server"], run["scripts"], run["rate"]) > 0 for run in own_runs)
    assert all(min(of_one_run) > 0 for runs in waits.data.values() for of_one_run in runs)


def test_one_table_can_be_asked_for() -> None:
    with place(replace(TINY, only="single")) as here:
        assert [table.name for table in slow.run(here)] == ["slow-single"]


def test_the_slots_of_peers_are_in_their_commands() -> None:
    commands = {each.name: each.command for each in slow._contenders(16)}
    assert commands[slow.HUEY][commands[slow.HUEY].index("-w") + 1] == "16"
    assert commands[slow.DRAMATIQ][commands[slow.DRAMATIQ].index("--threads") + 1] == "16"
    assert commands[slow.OUR] == next(each.command for each in OURS if each.name == slow.OUR)
