"""What is told of calls of tasks that failed: which task, with what, and how."""

from __future__ import annotations

from typing import Any

from shardq import Client
from shardq.backoff import Constant
from shardq.tasks import PartlyFailed, Tasks, finding
from tests.tasks.conftest import Work
from tests.worker.running import FunctionKind, of_kind

NOW = Constant(0)


def told(queue: Any) -> dict[tuple[str, str, str], tuple[int, int]]:
    return {(each.task, each.error_type, each.reason): (each.retried, each.dead) for each in queue.failures()}


def test_calls_are_told_by_their_task(client: Client, work: Work, functions: FunctionKind, monkeypatch: Any) -> None:
    monkeypatch.setattr(finding, "UNKNOWN_PAUSE", 0.0)
    monkeypatch.setattr(finding, "UNKNOWN_SECONDS", -1.0)  # nobody waits for another release
    tasks: Tasks[None] = Tasks("jobs", max_deliveries=5)

    def fails(number: int) -> None:
        raise TimeoutError(str(number))

    task: Any = tasks.task(name="mail.send", retries=2, backoff=NOW)(of_kind(functions, fails))
    queue = client.queue(tasks)
    queue.write(task.call(1), shard_key="a")
    queue.write(["mail.gone", {}], shard_key="b")
    queue.write(["mail.send", {"number": "no number"}], shard_key="c")
    queue.write("no call", shard_key="d")
    work(tasks)
    found = told(queue)
    wrong = next(name for _, name, reason in found if reason == "cannot decode" and name)
    assert found == {
        ("mail.send", "TimeoutError", "retry"): (2, 0),
        ("mail.send", "TimeoutError", "dead"): (0, 1),
        ("mail.gone", "", "no such task"): (0, 1),
        ("mail.send", wrong, "cannot decode"): (0, 1),
        ("", "", "cannot decode"): (0, 1),
    }
    assert wrong == "WrongArguments"
    trace = next(each.trace for each in queue.failures() if each.reason == "retry")
    assert trace.endswith(" in fails")


def test_members_of_a_batch_are_told_one_by_one(client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.batch(name="index", size=2, wait=5.0, retries=0)
    async def index(numbers: list[int]) -> None:
        raise PartlyFailed({0: ValueError("first"), 1: KeyError("second")})

    queue = client.queue(tasks)
    queue.write_many([(index.call(number), f"t{number}") for number in range(2)])
    work(tasks, concurrency=2)
    assert told(queue) == {("index", "ValueError", "dead"): (0, 1), ("index", "KeyError", "dead"): (0, 1)}
