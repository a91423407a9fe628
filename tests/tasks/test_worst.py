"""Lines of the table of docs/worker.md about calls whose worker, the command, is killed, drained or hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardq import Client
from tests.tasks import worst
from tests.waiting import eventually
from tests.worker.program import Program

Begin = Callable[..., Program]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def begin(url: str, log: Path) -> Iterator[Begin]:
    """Starts `shardq worker` with the tasks of `worst.py`."""
    with ExitStack() as stack:

        def begin(*words: str, name: str = "tasks") -> Program:
            program = Program(url, log, "shardq.cli", "worker", f"tests.tasks.worst:{name}", *words)
            stack.callback(program.process.wait, 30)
            stack.callback(program.process.kill)
            return program

        yield begin


def test_a_worker_is_killed(begin: Begin, client: Client, log: Path) -> None:
    """Another one takes over when the lease ends; that counts as one of the tries."""
    job = client.queue(worst.tasks).write(worst.held.call(1), shard_key="t")
    first = begin()
    eventually(log.exists, 60)
    first.signal(signal.SIGKILL)
    first.wait()
    assert begin("--until", "empty").wait() == 0
    assert job.result(timeout=0) == 2


def test_a_worker_is_killed_and_no_try_is_left(begin: Begin, client: Client, log: Path) -> None:
    queue = client.queue(worst.tasks)
    queue.write(worst.held_once.call(), shard_key="t")
    first = begin()
    eventually(log.exists, 60)
    first.signal(signal.SIGKILL)
    first.wait()
    assert begin("--until", "empty").wait() == 0
    (letter,) = queue.dead()
    assert letter.last_error == "task 'held_once' was delivered 1 times, and none was finished"


def test_a_worker_is_drained(begin: Begin, client: Client, log: Path) -> None:
    """Its grace is over before the task: the call is given back at once, uncounted, so it is run again."""
    job = client.queue(worst.tasks).write(worst.held_once.call(), shard_key="t")
    first = begin("--grace", "0.1")
    eventually(log.exists, 60)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert client.queue(worst.tasks).stats().backlog == 1
    assert begin("--until", "empty").wait() == 0
    assert job.result(timeout=0) == 1
    assert first.told("1 given back")


def test_arguments_are_wrong(begin: Begin, client: Client, log: Path) -> None:
    queue = client.queue(worst.tasks)
    queue.write(["held", {"width": "wide"}], shard_key="t")
    assert begin("--until", "empty").wait() == 0
    (letter,) = queue.dead()
    assert letter.last_error == "task 'held' does not take its arguments: width: expected int, got str"
    assert (letter.count, log.exists()) == (1, False)


@pytest.mark.parametrize(
    ("name", "words"), [("tasks", ()), ("plain", ("--run-in", "processes"))], ids=["async", "plain"]
)
def test_a_task_hangs(begin: Begin, client: Client, name: str, words: Sequence[str]) -> None:
    """When its time is over an async one is cancelled, and the process of a plain one is killed; it is tried again."""
    queue = client.queue(worst.tasks)
    job = queue.write(["hangs", {}], shard_key="t")
    worker = begin("--until", "empty", *words, name=name)
    assert worker.wait() == 0
    assert queue.result(job, timeout=0) == 2
    assert worker.told("ran for more than 0.3 s")
