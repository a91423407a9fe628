"""Time limits, and the slots of tasks that heed none: no call fails for what another one does."""

from __future__ import annotations

import threading
from typing import Any

from shardq import Client
from shardq.tasks import Tasks
from tests.tasks.conftest import Work
from tests.waiting import eventually


def test_what_waits_behind_tasks_that_hang_does_not_fail(client: Client, work: Work) -> None:
    """Their slots are taken until their threads are free: so no call is begun that no thread could run."""
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)
    release, ran = threading.Event(), list[int]()

    @tasks.task(name="hangs", retries=0, time_limit=0.2)
    def hangs() -> None:
        assert release.wait(60)

    @tasks.task(name="quick", retries=0, time_limit=0.2)
    def quick(number: int) -> None:
        ran.append(number)

    queue = client.queue(tasks)
    for _ in range(2):
        queue.write(hangs.call(), shard_key="hangs")
    working = threading.Thread(target=work, args=(tasks,), kwargs={"concurrency": 2})
    working.start()
    eventually(lambda: queue.stats().dead == 2)
    queue.write_many([(quick.call(number), f"t{number}") for number in range(20)])
    threading.Event().wait(0.6)  # far longer than each of them may take
    assert (ran, queue.stats().dead) == ([], 2)
    release.set()
    working.join(60)
    assert sorted(ran) == list(range(20))
    assert queue.stats().dead == 2


def test_a_batch_that_hangs_holds_the_slots_of_its_members(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    release, ran = threading.Event(), list[int]()

    def hangs(numbers: list[int]) -> None:
        assert release.wait(60)

    many = tasks.batch(name="hangs", size=2, wait=60, retries=0, time_limit=0.2)(hangs)

    @tasks.task(name="quick", retries=0, time_limit=0.2)
    def quick(number: int) -> None:
        ran.append(number)

    queue = client.queue(tasks)
    queue.write_many([(many.call(number), "hangs") for number in range(2)])
    working = threading.Thread(target=work, args=(tasks,), kwargs={"concurrency": 2})
    working.start()
    eventually(lambda: queue.stats().dead == 2)
    queue.write(quick.call(1), shard_key="t")
    threading.Event().wait(0.6)
    assert ran == []
    release.set()
    working.join(60)
    assert ran == [1]
    assert queue.stats().dead == 2


def test_the_limit_of_a_batch_counts_from_when_its_function_begins(client: Client, work: Work) -> None:
    """A member that waits for others does not fail for that."""
    tasks: Tasks[Any] = Tasks("jobs")
    sizes: list[int] = []

    def index(numbers: list[int]) -> None:
        sizes.append(len(numbers))

    task = tasks.batch(name="index", size=2, wait=60, retries=0, time_limit=0.2)(index)
    queue = client.queue(tasks)
    queue.write(task.call(1), shard_key="t")
    working = threading.Thread(target=work, args=(tasks,), kwargs={"concurrency": 2})
    working.start()
    eventually(lambda: queue.stats().in_flight == 1)
    threading.Event().wait(0.6)  # far longer than it may take
    queue.write(task.call(2), shard_key="u")
    working.join(60)
    assert (sizes, queue.stats().dead, queue.stats().acked) == ([2], 0, 2)


def test_a_batch_that_takes_too_long_has_failed(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    def index(numbers: list[int]) -> None:
        eventually(lambda: all(each.lost for each in tasks.delivery))

    task = tasks.batch(name="index", size=2, wait=60, retries=0, time_limit=0.2)(index)
    queue = client.queue(tasks)
    queue.write_many([(task.call(number), "t") for number in range(2)])
    work(tasks)
    assert [letter.last_error for letter in queue.dead()] == ["TimeLimit: it ran for more than 0.2 s"] * 2
