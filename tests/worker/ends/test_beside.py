"""Lines of the table of docs/worker.md about what is beside a job: reporters that hang, and lifespans."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from shardq import Client, Queue, Reject
from shardq.backoff import Constant
from shardq.tasks import Tasks
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.ends.catalogue import LIMIT, SETTINGS
from tests.worker.ends.errors import ODD, USUAL
from tests.worker.forward import Forward
from tests.worker.running import FunctionKind

SLOTS = 4


def tasks_with(**settings: Any) -> Tasks[Any]:
    """Tasks of the queue `jobs`, with one that fails in its first run and one that does nothing, of both kinds."""
    tasks: Tasks[Any] = Tasks("jobs", **SETTINGS, **settings)

    @tasks.task(name="fails")
    def fails() -> None:
        if tasks.delivery.count == 1:
            raise ValueError("told")

    @tasks.task(name="rejects")
    def rejects() -> None:
        raise Reject("poison")

    @tasks.task(name="quick")
    def quick() -> None: ...

    return tasks


def write(jobs: Queue, name: str, count: int) -> None:
    jobs.write_many([([name, {}], f"{name}-{number}") for number in range(count)])


def test_the_others_go_on_while_an_error_reporter_hangs(begin: Begin, client: Client) -> None:
    """The job that it is told of waits for it, and is settled then."""
    release, told = threading.Event(), list[BaseException]()

    def on_error(_: Any, error: BaseException) -> None:
        told.append(error)
        assert release.wait(90)

    tasks = tasks_with(on_error=on_error)
    jobs = client.queue(tasks)
    write(jobs, "fails", 1)
    begun = begin(tasks, concurrency=SLOTS, backoff=Constant(0))
    try:
        eventually(lambda: told)
        write(jobs, "quick", 20)
        eventually(lambda: jobs.stats().acked == 20)
        assert jobs.stats().in_flight == 1
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == 21)
    begun.stop()
    assert (begun.failure, len(told)) == (None, 1)


@pytest.mark.parametrize("which", ["backoff", "on_error"])
def test_the_others_go_on_while_what_is_asked_of_overdue_jobs_hangs(
    begin: Begin, client: Client, clock: Forward, functions: FunctionKind, which: str
) -> None:
    """With a backoff that hangs their messages are not settled yet; an error reporter is told when they are."""
    release, inside, asked = threading.Event(), list[int](), list[object]()

    def hangs(*args: object) -> float:
        asked.append(args)
        assert release.wait(90)
        return 0.0

    tasks: Tasks[Any] = Tasks("jobs", on_error=hangs if which == "on_error" else None, **SETTINGS)
    how: Any = {"time_limit": LIMIT, "retries": 1, "backoff": hangs if which == "backoff" else Constant(0)}

    def late(number: int) -> None:
        if (delivery := tasks.delivery).count == 1:
            inside.append(number)
            eventually(lambda: delivery.lost, 90)

    async def late_async(number: int) -> None:
        if tasks.delivery.count == 1:
            inside.append(number)
            await asyncio.sleep(90)

    tasks.task(name="late", **how)(late if functions == "plain" else late_async)
    tasks.task(name="quick")(lambda: None)
    jobs = client.queue(tasks)
    jobs.write_many([(["late", {"number": number}], f"late-{number}") for number in range(SLOTS - 1)])
    begun = begin(tasks, concurrency=SLOTS)
    try:
        eventually(lambda: len(inside) == SLOTS - 1)
        clock.by += LIMIT + 1
        eventually(lambda: len(asked) == SLOTS - 1)
        write(jobs, "quick", 20)
        settled = 20 if which == "backoff" else 20 + SLOTS - 1
        eventually(lambda: jobs.stats().acked == settled)
        assert jobs.stats().in_flight == 20 + SLOTS - 1 - settled
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == 20 + SLOTS - 1)
    begun.stop()
    assert (begun.failure, len(asked), jobs.stats().dead) == (None, SLOTS - 1, 0)


def test_a_slot_is_taken_until_the_error_reporter_of_an_overdue_job_has_ended(
    begin: Begin, client: Client, clock: Forward, functions: FunctionKind
) -> None:
    """So it is seen that no slot does anything any more, and there are no more threads than for two a slot."""
    release, inside = threading.Event(), list[int]()
    tasks: Tasks[Any] = Tasks("jobs", on_error=lambda *_: release.wait(90), **SETTINGS)

    def late(number: int) -> None:
        delivery = tasks.delivery
        inside.append(number)
        eventually(lambda: delivery.lost, 90)

    async def late_async(number: int) -> None:
        inside.append(number)
        await asyncio.sleep(90)

    tasks.task(name="late", time_limit=LIMIT, retries=0)(late if functions == "plain" else late_async)
    tasks.task(name="quick")(lambda: None)
    jobs = client.queue(tasks)
    jobs.write_many([(["late", {"number": number}], f"t{number}") for number in range(SLOTS)])
    begun = begin(tasks, concurrency=SLOTS)
    worker = begun.worker
    assert worker
    lane = worker._engine.lanes[0]
    try:
        eventually(lambda: len(inside) == SLOTS)
        clock.by += LIMIT + 1
        eventually(lambda: jobs.stats().dead == SLOTS)
        write(jobs, "quick", 20)
        eventually(lambda: len(lane._limits._told) == lane.stuck() == worker.hangs == SLOTS)
        assert lane._threads <= 2 * SLOTS + 4
        assert jobs.stats().backlog == 20
    finally:
        release.set()
    eventually(lambda: jobs.stats().acked == 20)
    begun.stop()
    assert (begun.failure, worker.hangs) == (None, 0)


def test_all_others_go_on_while_on_dead_hangs(begin: Begin, client: Client, functions: FunctionKind) -> None:
    release, told = threading.Event(), list[str]()

    def on_dead(_: Any, reason: str) -> None:
        told.append(reason)
        assert release.wait(90)

    async def on_dead_async(_: Any, reason: str) -> None:
        told.append(reason)
        while not release.is_set():  # noqa: ASYNC110 (the test's thread sets it)
            await asyncio.sleep(0.005)

    tasks = tasks_with()
    jobs = client.queue(tasks)
    write(jobs, "rejects", 2 * SLOTS)
    begun = begin(tasks, concurrency=SLOTS, on_dead=on_dead if functions == "plain" else on_dead_async)
    try:
        eventually(lambda: told)
        write(jobs, "quick", 20)
        eventually(lambda: jobs.stats().acked == 20)
        now = jobs.stats()
        assert (now.dead, now.in_flight, told) == (2 * SLOTS, 0, ["poison"])
    finally:
        release.set()
    begun.stop()
    assert begun.failure is None
    assert told == ["poison"] * 2 * SLOTS


@pytest.mark.parametrize("name", ["error", "exit", "stop-iteration", "no-attributes"])
@pytest.mark.parametrize("at", ["beginning", "end"])
def test_run_raises_what_a_lifespan_raises_and_no_message_is_lost(
    begin: Begin, client: Client, functions: FunctionKind, at: str, name: str
) -> None:
    raised = (USUAL | ODD)[name][0]()

    @contextmanager
    def plain() -> Iterator[None]:
        if at == "beginning":
            raise raised
        yield
        raise raised

    @asynccontextmanager
    async def awaited() -> AsyncIterator[None]:
        with plain():
            yield

    tasks = tasks_with(lifespan=plain if functions == "plain" else awaited)
    jobs = client.queue(tasks)
    write(jobs, "quick", 5)
    begun = begin(tasks, concurrency=SLOTS)
    if at == "end":
        eventually(lambda: jobs.stats().acked == 5)
        begun.stop(wait=False)
    begun.join()
    now = jobs.stats()
    assert (now.acked + now.backlog, now.in_flight, now.dead) == (5, 0, 0)
    assert {each.count for each in jobs.read_many(5)} <= {1}, "and none is counted"
    failure = begun.failure
    if type(failure) is RuntimeError:  # as Python has it of a StopIteration that leaves a generator
        failure = failure.__cause__
    assert failure is raised
