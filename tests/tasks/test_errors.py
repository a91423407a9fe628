"""Errors that fail whoever looks at them, or that Python treats apart: each fails its own call, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardq import Client
from shardq.backoff import Constant
from shardq.tasks import PartlyFailed, Tasks
from tests.tasks.conftest import Work, each_kind, of_kind
from tests.worker.handlers import HOSTILE

NOW = Constant(0)


@each_kind
def test_a_task_that_finds_nothing_has_failed_with_stop_iteration(client: Client, work: Work, is_async: bool) -> None:
    """Python lets it out of no coroutine, and into no future."""
    told: list[str] = []
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60, on_error=lambda _, error: told.append(type(error).__name__))

    def first(number: int) -> int:
        return next(each for each in [1, 2] if each > number)

    task = tasks.task(name="first", retries=1, backoff=NOW, retry_on=(StopIteration,))(of_kind(is_async, first))
    queue = client.queue(tasks)
    good, _ = queue.write(task.call(0), shard_key="a"), queue.write(task.call(5), shard_key="b")
    work(tasks, concurrency=1)
    (letter,) = queue.dead()
    assert (letter.count, letter.last_error.partition(" ")[0], told) == (2, "StopIteration", ["StopIteration"] * 2)
    assert good.result(timeout=0) == 1


def test_a_runtime_error_of_a_task_is_its_own_though_nothing_was_found(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="f", retries=0)
    def f() -> None:
        try:
            next(iter([]))
        except StopIteration as error:
            raise RuntimeError("no settings") from error

    client.queue(tasks).write(f.call(), shard_key="t")
    work(tasks)
    assert client.queue(tasks).dead()[0].last_error.startswith("RuntimeError (")


@pytest.mark.parametrize("what", HOSTILE)
@each_kind
def test_an_error_that_fails_who_looks_at_it_fails_its_own_call(
    client: Client, work: Work, is_async: bool, what: str
) -> None:
    tasks: Tasks[None] = Tasks("jobs", max_deliveries=2, result_ttl=60)

    def f(number: int) -> int:
        if number == 0:
            raise HOSTILE[what]()
        return number

    task = tasks.task(name="f", backoff=NOW)(of_kind(is_async, f))
    queue = client.queue(tasks)
    jobs = [queue.write(task.call(number), shard_key=f"t{number}") for number in range(4)]
    work(tasks, concurrency=1, backoff=NOW)
    assert [job.result(timeout=0) for job in jobs[1:]] == [1, 2, 3]
    (letter,) = queue.dead()
    assert (letter.message_id, letter.count) == (jobs[0].id, 2)


class Oddly(PartlyFailed):
    """One whose errors are no mapping by the time that they are looked at."""

    def __init__(self, errors: Any) -> None:
        Exception.__init__(self)
        self.errors = errors


ODD_PARTS: dict[str, tuple[Any, str]] = {
    "a text": (lambda: PartlyFailed({1: "text"}), "ConfigError"),  # type: ignore[dict-item]
    "a class": (lambda: PartlyFailed({1: ValueError}), "ConfigError"),  # type: ignore[dict-item]
    "nothing": (lambda: PartlyFailed({1: None}), "ConfigError"),  # type: ignore[dict-item]
    "a place that is true": (lambda: PartlyFailed({True: ValueError()}), "ConfigError"),
    "a place with a point": (lambda: PartlyFailed({1.0: ValueError()}), "ConfigError"),  # type: ignore[dict-item]
    "no mapping": (lambda: Oddly(5), "ConfigError"),
    "no errors": (lambda: Oddly.__new__(Oddly), "ConfigError"),
}


@pytest.mark.parametrize("what", ODD_PARTS)
@each_kind
def test_a_batch_that_tells_nonsense_of_its_parts_has_failed_whole(
    client: Client, work: Work, is_async: bool, what: str
) -> None:
    """Else what failed would be acked as done."""
    make, reason = ODD_PARTS[what]
    assert ends_of_batch(client, work, is_async, make) == [reason] * 3


@pytest.mark.parametrize(
    "error", [StopIteration(), asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()], ids=repr
)
@each_kind
def test_a_part_of_a_batch_fails_with_whatever_error(
    client: Client, work: Work, is_async: bool, error: BaseException
) -> None:
    kind = type(error).__name__
    assert ends_of_batch(client, work, is_async, lambda: PartlyFailed({1: error})) == [kind]
    assert ends_of_batch(client, work, is_async, lambda: error) == [kind] * 3


def ends_of_batch(client: Client, work: Work, is_async: bool, make: Any) -> list[str]:
    """Return the errors of the dead letters of three members of a batch that raises what *make* returns."""
    tasks: Tasks[None] = Tasks("jobs")

    def index(numbers: list[int]) -> None:
        raise make()

    task = tasks.batch(name="index", size=3, wait=30, retries=0)(of_kind(is_async, index))
    queue = client.queue(tasks)
    before = queue.stats().acked
    queue.write_many([(task.call(number), "t") for number in range(3)])
    work(tasks)
    letters = queue.dead()
    assert len(letters) + queue.stats().acked - before == 3
    for letter in letters:
        queue.delete_dead([letter])
    return [letter.last_error.partition(" ")[0] for letter in letters]
