"""Jobs that hang in threads past their time limit, and others behind them."""

from __future__ import annotations

import threading

import pytest

from shardq import Client
from shardq.backoff import Constant
from shardq.tasks import Tasks
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.ends.catalogue import LIMIT, SETTINGS
from tests.worker.forward import Forward


@pytest.mark.parametrize(
    ("hung", "quick"), [(8, 100), pytest.param(64, 1000, marks=pytest.mark.runs_in("test-all"))], ids=str
)
def test_jobs_behind_hung_ones_wait_and_none_fails_before_it_has_run(
    begin: Begin, client: Client, clock: Forward, hung: int, quick: int
) -> None:
    tasks: Tasks[None] = Tasks("jobs", **SETTINGS)
    release, inside, ran = threading.Event(), list[int](), list[tuple[int, int]]()

    @tasks.task(name="hangs")
    def hangs(number: int) -> None:
        inside.append(number)
        release.wait(150)

    @tasks.task(name="quick")
    def runs(number: int) -> None:
        ran.append((number, tasks.delivery.count))

    jobs = client.queue(tasks)
    jobs.write_many([(hangs.call(number), f"h{number}") for number in range(hung)])
    begun = begin(tasks, concurrency=hung, time_limit=LIMIT, backoff=Constant(500))
    try:
        eventually(lambda: len(inside) == hung)
        jobs.write_many([(runs.call(number), f"q{number % 50}") for number in range(quick)])
        for _ in range(3):
            clock.by += LIMIT + 1
            eventually(lambda: jobs.stats().delayed >= hung)
            threading.Event().wait(0.2)  # in which a worker that forgot its threads would take some of those behind
        assert jobs.stats().backlog == quick, "a slot is taken until its thread is free"
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == quick)
    assert sorted(ran) == [(number, 1) for number in range(quick)]
    assert jobs.stats().dead == 0
    begun.stop()
    assert begun.failure is None
