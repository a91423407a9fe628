"""Tasks in child processes: the same retries, refusals and lifespans, in another process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, ConfigError, Worker
from shardq.tasks import Tasks
from tests.tasks.processes import dies, fails, hangs, nack, pid, tasks

WorkInProcesses = Callable[..., None]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def work(client: Client) -> None:
    Worker(client.queue(tasks), tasks, run_in="processes", concurrency=2, until="empty").run()


def test_a_task_runs_in_another_process_with_its_lifespan(client: Client, log: Path) -> None:
    queue = client.queue(tasks)
    job, again = queue.write(pid.call(3), shard_key="t"), queue.write(nack.call(), shard_key="t")
    work(client)
    number, resources, count = job.result(timeout=0)
    assert number != os.getpid()
    assert (resources, count, again.result(timeout=0)) == ("resources", 1, 2)
    opened, closed = (
        {line.split()[1] for line in log.read_text().splitlines() if line.startswith(word)}
        for word in ("open", "close")
    )
    assert str(number) in opened
    assert opened == closed


def test_an_error_reporter_is_told_once_of_each_try(client: Client, log: Path) -> None:
    """Of what a task raises, in its process; of one that died or was killed for its time, in that of the worker."""
    client.queue(tasks).write_many([(call, "t") for call in (fails.call(), dies.call(), hangs.call())])
    work(client)
    told = [line.split()[1:] for line in log.read_text().splitlines() if line.startswith("told")]
    assert sorted(said[1:] for said in told) == [
        *[["dies", "ProcessDied"]] * 2, *[["fails", "ValueError"]] * 3, ["hangs", "TimeLimit"]
    ]  # fmt: skip
    assert {said[1] for said in told if said[0] == str(os.getpid())} == {"dies", "hangs"}


def test_retries_refusals_and_unknown_tasks_are_those_of_threads(client: Client, log: Path) -> None:
    queue = client.queue(tasks)
    calls: list[Any] = [fails.call(), dies.call(), ["pid", {"width": "wide"}], ["nobody", {}]]
    queue.write_many([(call, "t") for call in calls])
    work(client)
    letters = {letter.task: (letter.count, letter.last_error) for letter in queue.dead()}
    assert letters["fails"] == (3, "ValueError (fails tasks/processes.py:46)")
    assert letters["dies"][0] == 2
    assert "killed by SIGKILL" in letters["dies"][1]
    assert letters["pid"][0] == 1
    assert "width: expected int, got str" in letters["pid"][1]
    queue.redrive([letter for letter in queue.dead() if letter.task == "fails"])
    work(client)
    assert {letter.task: letter.count for letter in queue.dead()}["fails"] == 6
    (kept,) = queue.peek(state="delayed").messages
    assert (kept.task, kept.deliveries) == ("nobody", 0)


def test_tasks_that_no_process_can_import_or_that_take_batches_are_refused(client: Client, log: Path) -> None:
    local: Tasks[None] = Tasks("jobs")
    local.task(name="f")(lambda: None)
    with pytest.raises(ConfigError, match=r"no variable at the top of module 'tests.tasks.test_processes'"):
        Worker(client.queue(local), local, run_in="processes").run()

    def index(documents: list[int]) -> None: ...

    local.batch(name="index")(index)
    with pytest.raises(ConfigError, match="one message at a time"):
        Worker(client.queue(local), local, run_in="processes")
