"""benchmarks/worker runs with shardq alone: nothing is fetched, and no figure is looked at."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from benchmarks import worker
from benchmarks.settings import Place, Settings, place
from benchmarks.workers import environments, killed
from benchmarks.workers import run as measuring
from benchmarks.workers.contenders import OTHERS, OURS
from benchmarks.workers.processes import Enqueuer, Worker
from benchmarks.workers.run import Bench, measured
from tests.parts import LINUX
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [LINUX.needed, pytest.mark.runs_in("test-all")]
TINY = Settings(rounds=1, messages=50, seconds=1)


@pytest.fixture
def here() -> Iterator[Place]:
    with place(TINY) as made:
        yield made


def test_a_table_of_rates_and_one_of_settings(here: Place) -> None:
    rates, kills, settings = worker.compare(here, OURS, patience=0.1)
    for table in (rates, settings, kills):
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [row[0] for row in rates.rows] == [row[0] for row in settings.rows] == [each.name for each in OURS]
    assert len(kills.rows) == len(OURS) - 3  # the same worker, whose jobs are written in other ways, is killed once
    assert all(0 < case["before"] <= case["ran"] <= 200 for case in kills.data.values())
    assert all(run["work"] > 0 and run["enqueue"] > 0 for own in rates.data.values() for run in own)


@pytest.mark.parametrize("name", ["shardq.Worker, single writes", "shardq.Worker, gathered writes"])
def test_one_way_of_writing_alone_can_be_asked_for(here: Place, name: str) -> None:
    (only,) = (each for each in OURS if each.name == name)
    rates, kills, settings = worker.compare(here, [only], patience=0.1)
    assert [[row[0] for row in table.rows] for table in (rates, kills, settings)] == [[name]] * 3


def test_where_nobody_could_be_fetched_the_tables_say_so(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def programs(_: object) -> Path:
        raise environments.Missing("no index")

    monkeypatch.setattr(environments, "programs", programs)
    rates, kills, settings = worker.compare(here, [OTHERS[0]], patience=0.1)
    assert rates.rows[0][1] == "left out: no index"
    assert kills.rows == settings.rows == []


def test_who_cannot_be_fetched_is_named(here: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "CACHE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip refuses without asking anybody
    rates, _, _ = worker.compare(here, [OTHERS[0]], patience=0.1)
    assert rates.rows[-1][0] == OTHERS[0].name
    assert rates.rows[-1][1].startswith("left out: ")
    assert "no matching distribution" in rates.rows[-1][1].lower()


def test_a_worker_that_fails_is_told_with_its_log() -> None:
    broken = replace(OURS[0], command=("python", "-c", "raise SystemExit('no such thing')"))
    with pytest.raises(AssertionError, match="the mark is missing, 201 jobs are left") as caught:
        measured(broken, TINY)
    assert "no such thing" in str(caught.value.__notes__)


def test_a_job_that_does_not_run_is_noticed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    contender = OURS[0]
    with Worker(contender, server.url) as running, Enqueuer(contender, server.url) as enqueuer:
        enqueuer.enqueue(3, "x")
        eventually(lambda: contender.left(None, server.url) == 0, 40)
        with Redis.from_url(server.url) as connection:
            bench = Bench(contender, server.url, connection, running, enqueuer)
            bench.check_ran(3)
            with pytest.raises(AssertionError, match="a job ran twice"):
                bench.check_ran(2)
            monkeypatch.setattr(measuring, "PATIENCE", 3)
            with pytest.raises(AssertionError, match="one of 4 jobs is missing"):
                bench.check_ran(4)


def test_the_jobs_of_a_killed_worker_are_counted_until_all_have_run() -> None:
    slow = OURS[-1]  # one job at a time
    brief = replace(slow, variables={**slow.variables, "BENCH_LEASE": "0.3"})
    for _ in range(3):
        (case,) = killed.killed([brief], jobs=200, patience=40)
        if case.before < 200:  # else it was done before it was killed, on a machine that stood still meanwhile
            break
    assert 50 <= case.before < case.ran == 200
    assert 0.2 < case.took < 40


def test_a_paused_worker_takes_nothing_and_costs_nothing(server: Server) -> None:
    contender = OURS[0]
    with Worker(contender, server.url) as running, Enqueuer(contender, server.url) as enqueuer:
        enqueuer.enqueue(1, "x")
        eventually(lambda: contender.left(None, server.url) == 0, 40)
        running.pause()
        spent = running.cpu()
        assert spent > 0
        enqueuer.enqueue(5, "x")
        assert contender.left(None, server.url) == 5
        assert running.cpu() == spent
        running.signal(signal.SIGCONT)
        eventually(lambda: contender.left(None, server.url) == 0, 40)
    with pytest.raises(ProcessLookupError):
        os.killpg(running._process.pid, 0)
