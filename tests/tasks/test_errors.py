"""Errors that Python treats apart. tests/worker/ends has all others."""

from __future__ import annotations

from typing import Any

from shardq import Client
from shardq.backoff import Constant
from shardq.tasks import Tasks
from tests.tasks.conftest import Work
from tests.worker.running import FunctionKind, of_kind

NOW = Constant(0)


def test_a_task_that_finds_nothing_has_failed_with_stop_iteration(
    client: Client, work: Work, functions: FunctionKind
) -> None:
    """Python lets it out of no coroutine, and into no future."""
    told: list[str] = []
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60, on_error=lambda _, error: told.append(type(error).__name__))

    def first(number: int) -> int:
        return next(each for each in [1, 2] if each > number)

    task: Any = tasks.task(name="first", retries=1, backoff=NOW, retry_on=(StopIteration,))(of_kind(functions, first))
    queue = client.queue(tasks)
    good, _ = queue.write(task.call(0), shard_key="a"), queue.write(task.call(5), shard_key="b")
    work(tasks, concurrency=1)
    (letter,) = queue.dead()
    assert (letter.count, letter.last_error.partition(" ")[0], told) == (2, "StopIteration", ["StopIteration"] * 2)
    assert good.result(timeout=0) == 1


def test_a_runtime_error_of_a_task_is_its_own_though_nothing_was_found(
    client: Client, work: Work, functions: FunctionKind
) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    def finds() -> None:
        try:
            next(iter([]))
        except StopIteration as error:
            raise RuntimeError("no settings") from error

    tasks.task(name="f", retries=0)(of_kind(functions, finds))
    client.queue(tasks).write(["f", {}], shard_key="t")
    work(tasks)
    assert client.queue(tasks).dead()[0].last_error.startswith("RuntimeError (")
