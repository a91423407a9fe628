"""Jobs that run past their time limit, alone or in a batch, and others behind them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from shardq import Client
from shardq.backoff import Constant
from shardq.tasks import Tasks
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.ends.catalogue import LIMIT, SETTINGS
from tests.worker.forward import Forward
from tests.worker.running import RunningWorker


def is_stuck(begun: RunningWorker) -> bool:
    """Whether all slots are taken by jobs whose messages are settled."""
    assert begun.worker
    return begun.worker._engine.is_stuck()


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
            eventually(lambda: is_stuck(begun))
        assert jobs.stats().backlog == quick, "a slot is taken until its thread is free"
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == quick)
    assert sorted(ran) == [(number, 1) for number in range(quick)]
    assert jobs.stats().dead == 0
    begun.stop()
    assert begun.failure is None


def test_a_batch_that_hangs_holds_the_slots_of_its_members(begin: Begin, client: Client, clock: Forward) -> None:
    tasks: Tasks[None] = Tasks("jobs", **SETTINGS)
    release, inside, ran = threading.Event(), list[int](), list[int]()

    def hangs(numbers: list[int]) -> None:
        inside.extend(numbers)
        assert release.wait(90)

    many = tasks.batch(name="hangs", size=2, wait=60, retries=0, time_limit=LIMIT)(hangs)

    @tasks.task(name="quick", retries=0, time_limit=LIMIT)
    def quick(number: int) -> None:
        ran.append(number)

    jobs = client.queue(tasks)
    jobs.write_many([(many.call(number), "hangs") for number in range(2)])
    begun = begin(tasks, concurrency=2)
    try:
        eventually(lambda: len(inside) == 2)
        clock.by += LIMIT + 1
        eventually(lambda: jobs.stats().dead == 2)
        eventually(lambda: is_stuck(begun))
        jobs.write(quick.call(1), shard_key="t")
        clock.by += LIMIT + 1
        assert ran == []
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == 1)
    assert (ran, jobs.stats().dead) == ([1], 2)


def test_the_limit_of_a_batch_counts_from_when_its_function_begins(
    begin: Begin, client: Client, clock: Forward
) -> None:
    """A member that waits for others does not fail for that."""
    tasks: Tasks[Any] = Tasks("jobs", **SETTINGS)
    release, inside, sizes = threading.Event(), threading.Event(), list[int]()

    def index(numbers: list[int]) -> None:
        sizes.append(len(numbers))

    many = tasks.batch(name="index", size=2, wait=60, retries=0, time_limit=LIMIT)(index)

    @tasks.task(name="hangs", retries=0, time_limit=LIMIT)
    def hangs() -> None:
        inside.set()
        assert release.wait(90)

    jobs = client.queue(tasks)
    jobs.write(many.call(1), shard_key="t")
    begin(tasks, concurrency=3)
    try:
        eventually(lambda: jobs.stats().in_flight == 1)
        jobs.write(hangs.call(), shard_key="t")
        assert inside.wait(30)
        clock.by += LIMIT + 1
        eventually(lambda: jobs.stats().dead == 1, what="the limit of the later one rings after that of the member")
        assert jobs.stats().in_flight == 1
        jobs.write(many.call(2), shard_key="t")
        eventually(lambda: jobs.stats().acked == 2)
    finally:
        release.set()
    assert sizes == [2]


def test_all_members_of_a_batch_that_takes_too_long_have_failed(begin: Begin, client: Client, clock: Forward) -> None:
    tasks: Tasks[None] = Tasks("jobs", **SETTINGS)
    inside, told = threading.Event(), threading.Event()

    def index(numbers: list[int]) -> None:
        inside.set()
        eventually(lambda: all(each.lost for each in tasks.delivery))
        told.set()

    many = tasks.batch(name="index", size=2, wait=60, retries=0, time_limit=LIMIT)(index)
    jobs = client.queue(tasks)
    jobs.write_many([(many.call(number), "t") for number in range(2)])
    begin(tasks, concurrency=2)
    assert inside.wait(30)
    clock.by += LIMIT + 1
    eventually(lambda: jobs.stats().dead == 2)
    assert told.wait(30)
    assert [letter.last_error for letter in jobs.dead()] == [f"TimeLimit: it ran for more than {LIMIT:g} s"] * 2
