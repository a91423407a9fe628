"""Functions that heed nothing: the worker counts them when it has ended, and a command's process ends without them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.tasks import Tasks
from tests.clients import ClientKind
from tests.waiting import eventually
from tests.worker import deaf, handlers
from tests.worker.program import Program
from tests.worker.running import RunningWorker

Begin = Callable[..., Program]


@pytest.fixture
def begin(url: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts `shardq worker` with the tasks of `deaf.py`."""
    with ExitStack() as stack:

        def begin(name: str, *words: str) -> Program:
            program = Program(url, tmp_path / "log", "shardq.cli", "worker", f"tests.worker.deaf:{name}", *words)
            stack.callback(program.process.wait, 30)
            stack.callback(program.process.kill)
            return program

        yield begin


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="one process"),
        pytest.param(("--processes", "2"), id="two", marks=pytest.mark.runs_in("test-all")),
    ],
)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("plain", deaf.hangs.call()),
        ("mixed", deaf.hangs_beside_async.call()),
        ("mixed", deaf.hangs_in_its_own_thread.call()),
        ("mixed", deaf.hangs_as_task.call()),
    ],
    ids=["in a Worker", "in an AsyncWorker", "in a thread of asyncio", "as a task"],
)
def test_a_command_ends_after_its_grace_whatever_hangs(
    begin: Begin, client: Client, name: str, call: Any, words: tuple[str, ...]
) -> None:
    """What hung was given back, and another worker may run it: so it must not go on here."""
    queue = client.queue("jobs", result_ttl=60)
    queue.write(call, shard_key="t")
    program = begin(name, "--grace", "0.2", *words)
    eventually(lambda: program.lines("inside"), 60)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    assert (queue.stats().backlog, queue.stats().in_flight) == (1, 0)
    assert program.told("1 functions run on after the grace, and end with this process")
    assert program.told("0 done, 0 failed, 1 given back")


def test_a_command_waits_for_what_ends_when_it_is_told_to(begin: Begin, client: Client) -> None:
    client.queue("jobs", result_ttl=60).write(deaf.heeds.call(), shard_key="t")
    program = begin("mixed", "--grace", "0.2")
    eventually(lambda: program.lines("inside"), 60)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    assert program.lines("left")
    assert not program.told("run on after the grace")


def test_a_worker_counts_what_hangs(client: Client, url: str, client_kind: ClientKind) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    inside, release = threading.Semaphore(0), threading.Event()

    @tasks.task(name="hangs")
    def hangs() -> None:
        inside.release()
        assert release.wait(60)

    queue = client.queue(tasks)
    queue.write_many([(hangs.call(), f"t{number}") for number in range(3)])
    with RunningWorker(client_kind, url, "jobs", tasks, grace=0.1) as begun:
        for _ in range(3):
            assert inside.acquire(timeout=30)
        begun.stop()
        assert begun.worker
        assert begun.worker.hangs == 3
        release.set()
        eventually(lambda: begun.worker is not None and begun.worker.hangs == 0)
    assert queue.stats().backlog == 3


def test_a_worker_of_which_nothing_hangs_counts_none(client: Client, url: str, client_kind: ClientKind) -> None:
    client.queue("jobs", create=True).write("a", shard_key="t")
    done = threading.Event()
    with RunningWorker(client_kind, url, "jobs", lambda _: done.set()) as begun:
        assert done.wait(30)
        begun.stop()
        assert begun.worker
        assert begun.worker.hangs == 0


@pytest.mark.runs_in("test-all")
def test_handlers_whose_child_processes_were_killed_do_not_hang(
    client: Client, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    queue = client.queue("jobs", create=True)
    queue.write_many([(number, f"t{number}") for number in range(4)])
    with RunningWorker("sync", url, "jobs", handlers.deaf, run_in="processes", concurrency=4, grace=0.1) as begun:
        eventually(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("began") == 4, 60)
        begun.stop()
        assert begun.worker
        assert begun.worker.hangs == 0
    assert queue.stats().backlog == 4
