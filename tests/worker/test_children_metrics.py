"""What handlers measure in child processes reaches the process that has `--metrics`, and costs no job anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shardq import Queue, Worker
from shardq.backoff import Constant
from shardq.telemetry import pipe
from shardq.telemetry.family import Family, Member, begin_family, end_family
from shardq.telemetry.instruments import CONSUMED
from shardq.telemetry.sample import Sample
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.running import RunningWorker


@pytest.fixture
def family() -> Iterator[Family]:
    yield begin_family(list)
    end_family()


def begun(url: str, **settings: Any) -> RunningWorker:
    chosen: dict[str, Any] = {"concurrency": 2, "run_in": "processes"}
    return RunningWorker("sync", url, "jobs", handlers.measured, **(chosen | settings))


def counted(family: Family) -> float:
    """How often handlers have measured something."""
    measured: list[Any] = [each.value for each in family.samples() if each.instrument is CONSUMED]
    return float(sum(measured))


@pytest.mark.runs_in("test-all")
def test_a_child_tells_once_a_second_and_its_last_burst_too(
    jobs: Queue, url: str, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tell = [], Member.tell

    def noted(member: Member, samples: list[Sample]) -> None:
        told.append(member)
        tell(member, samples)

    monkeypatch.setattr(Member, "tell", noted)
    count = 300
    jobs.write_many([(number, str(number)) for number in range(count)])
    began = time.monotonic()
    with begun(url, concurrency=1) as running:
        eventually(lambda: jobs.stats().acked == count, 60)
        eventually(lambda: counted(family) == count, what="an idle child has told all")
        assert len(told) <= (time.monotonic() - began) / pipe.PERIOD + 1
        running.stop()
    assert counted(family) == count


@pytest.mark.runs_in("test-all")
def test_the_end_of_a_worker_takes_nothing_away(jobs: Queue, url: str, family: Family) -> None:
    """Though its children have not told for a second."""
    jobs.write_many([(number, str(number)) for number in range(50)])
    with begun(url, until="empty") as running:
        running.join()
    assert counted(family) == 50


@pytest.mark.runs_in("test-all")
def test_a_child_tells_while_its_job_runs_so_that_its_death_takes_little_away(
    jobs: Queue, url: str, family: Family
) -> None:
    jobs.write("hang", shard_key="t")
    with begun(url, concurrency=1, backoff=Constant(600)) as running:
        eventually(lambda: counted(family) == 1)
        assert isinstance(running.worker, Worker)
        running.worker._engine.kill_children()
        eventually(lambda: jobs.stats().delayed == 1)
        running.stop()
    assert counted(family) == 1
