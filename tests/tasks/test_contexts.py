"""What a task sets in context variables ends with it: no other tenant's task sees it."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shardq import Client, Reject
from shardq.backoff import Constant
from shardq.tasks import Tasks
from tests.tasks.conftest import Work
from tests.waiting import eventually
from tests.worker.running import FunctionKind, of_kind

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
opened: ContextVar[str] = ContextVar("opened", default="nothing")


@contextmanager
def lifespan() -> Iterator[None]:
    opened.set("a database")
    yield


Seen = list[tuple[str, str, int]]


def mark(seen: Seen, name: object) -> None:
    """Note what is there, and leave something of one's own."""
    seen.append((tenant.get(), opened.get(), decimal.getcontext().prec))
    tenant.set(str(name))
    opened.set(str(name))
    decimal.getcontext().prec = 3


UNTOUCHED = ("nobody", "a database", decimal.getcontext().prec)


def test_no_task_sees_what_another_one_has_set(client: Client, work: Work, functions: FunctionKind) -> None:
    seen: Seen = []
    tasks: Tasks[None] = Tasks("jobs", lifespan=lifespan)

    def f(number: int) -> None:
        mark(seen, number)

    task = tasks.task(name="f")(of_kind(functions, f))
    queue = client.queue(tasks)
    queue.write_many([(task.call(number), f"t{number}") for number in range(20)])
    work(tasks, concurrency=2)
    assert seen == [UNTOUCHED] * 20


def test_what_is_told_of_a_task_is_told_in_a_context_of_its_own(
    client: Client, work: Work, functions: FunctionKind
) -> None:
    """Of dead letters, and of a policy that is asked when time is over."""
    seen: Seen = []

    def on_dead(delivery: Any, reason: str) -> None:
        mark(seen, reason)

    def fails(number: int) -> None:
        tenant.set("one of the tasks")
        raise Reject("no")

    tasks: Tasks[None] = Tasks("jobs", lifespan=lifespan)
    task = tasks.task(name="f")(of_kind(functions, fails))
    client.queue(tasks).write_many([(task.call(number), f"t{number}") for number in range(5)])
    work(tasks, concurrency=1, on_dead=on_dead, backoff=Constant(0))
    assert seen == [UNTOUCHED] * 5


def test_who_is_asked_of_a_task_that_takes_too_long_leaves_nothing_behind(client: Client, work: Work) -> None:
    seen: Seen = []
    tasks: Tasks[None] = Tasks("jobs", lifespan=lifespan, max_deliveries=3)

    def backoff(count: int, random: object) -> float:
        mark(seen, count)
        return 0.0

    @tasks.task(name="f", backoff=backoff, time_limit=0.05)
    def f(number: int) -> None:
        delivery = tasks.delivery
        eventually(lambda: delivery.lost)

    client.queue(tasks).write(f.call(1), shard_key="t")
    work(tasks, concurrency=2)
    assert len(seen) >= 2
    assert set(seen) == {UNTOUCHED}


def test_no_callback_of_a_lost_lease_sees_what_another_one_has_set(client: Client) -> None:
    seen: list[str] = []
    with client:
        queue = client.queue("jobs", visibility_timeout=1)
        queue.write_many([(number, "t") for number in range(5)])
        for delivery in queue.read_many(5):

            def lost(_: object) -> None:
                seen.append(tenant.get())
                tenant.set("one of them")

            delivery.on_lost(lost)
        eventually(lambda: len(seen) == 5)
    assert seen == ["nobody"] * 5
