"""The end of the commands that run workers: after their grace they wait for no job, whatever it does.

What they take is what they would on an idle machine: time in which they wait for a processor does not count.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from shardq import Client, Queue
from tests.parts import APPS, APPS_BIN, LINUX
from tests.stalls import RunTime, main_threads
from tests.waiting import eventually
from tests.worker.ends.catalogue import SETTINGS
from tests.worker.ends.elsewhere import environment_of
from tests.worker.program import Program, children_of

pytestmark = LINUX.needed
GRACE: Final = 0.5
LATEST: Final = 2.0
"""Seconds after the grace."""
LOOK_SECONDS: Final = 0.005
"""Seconds between two looks whether a process has ended."""
JOBS: Final = ("a", "b", "c", "d")


class Command(NamedTuple):
    """What is started, and what a message for it is."""

    words: Sequence[str]
    payload: Callable[[str], Any]
    is_django: bool = False


def of_task(task: str) -> Callable[[str], Any]:
    """Calls of this task."""
    return lambda name: [task, {"name": name}]


def of_django(name: str) -> Any:
    """A call of Django's, as its backend writes it."""
    return ["tests.django.site.ends.deaf", {"call": json.dumps({"args": [name], "kwargs": {}})}]


HANDLER: Final = ("shardq.cli", "worker", "tests.worker.ends.deaf:handle", "--queue", "default")
ASYNC: Final = ("shardq.cli", "worker", "tests.worker.ends.deaf:handle_async", "--queue", "default")
TASKS: Final = ("shardq.cli", "worker", "tests.worker.ends.deaf:tasks")
MIXED: Final = ("shardq.cli", "worker", "tests.worker.ends.deaf:mixed")
SEVERAL: Final = ("--processes", "2", "--concurrency", "2")
COMMANDS: Final[Mapping[str, Command]] = {
    "handler": Command(HANDLER, str),
    "tasks": Command(TASKS, of_task("deaf")),
    "several": Command((*TASKS, *SEVERAL), of_task("deaf")),
    "beside-async": Command(MIXED, of_task("deaf_beside_async")),
    "own-thread": Command(MIXED, of_task("deaf_in_its_own_thread")),
    "async": Command(ASYNC, str),
    "async-several": Command((*ASYNC, *SEVERAL), str),
    "django": Command(("django", "shardq_worker", "--queue", "default"), of_django, is_django=True),
}
EACH: Final = [
    pytest.param(name, marks=[APPS.needed] * command.is_django, id=name) for name, command in COMMANDS.items()
]
Begin = Callable[[str], Program]


def kill(program: Program) -> None:
    """Leave nothing of it, also if its processes do not end with it."""
    if program.process.poll() is None:
        for pid in (*children_of(program.process.pid), program.process.pid):
            os.kill(pid, signal.SIGKILL)
    program.process.wait(30)


@pytest.fixture
def begin(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    for name, value in environment_of(url).items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:

        def begin(name: str) -> Program:
            command = COMMANDS[name]
            python = {"python": str(APPS_BIN / "python")} if command.is_django else {}
            log = tmp_path / f"log-{time.monotonic_ns()}"
            program = Program(url, log, *command.words, "--grace", str(GRACE), **python)
            stack.callback(kill, program)
            return program

        yield begin


@pytest.fixture
def jobs(client: Client) -> Queue:
    return client.queue("default", create=True, **SETTINGS)


class Watch(threading.Thread):
    """Watches a program until it has ended."""

    def __init__(self, program: Program) -> None:
        super().__init__(daemon=True)
        self._pid = program.process.pid
        self.time = RunTime(lambda: main_threads([self._pid, *children_of(self._pid)]))
        self._at = 0.0
        self.start()

    def run(self) -> None:
        pause = threading.Event()
        while os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            self._at = time.monotonic()
            self.time.look()
            pause.wait(LOOK_SECONDS)

    @property
    def took(self) -> float:
        """How long it was there, of what the machine gave it."""
        return self.time.until(self._at)


def ended(begin: Begin, jobs: Queue, name: str) -> float:
    """Start the command, let it run jobs that heed nothing, and end it by SIGTERM. Return how long that takes.

    This test takes over the jobs as soon as they are given back.
    """
    program, payload = begin(name), COMMANDS[name].payload
    jobs.write_many([(payload(each), each) for each in JOBS])
    eventually(lambda: {row[0] for row in program.lines("tick")} == {*JOBS}, 60)
    watch = Watch(program)
    program.signal(signal.SIGTERM)
    taken: dict[str, float] = {}
    while len(taken) < len(JOBS):
        found = jobs.read_many(len(JOBS), block=20)
        assert found, "they are given back"
        assert {each.count for each in found} == {1}
        taken |= {str(each.shard_key): time.time() for each in found}
        jobs.ack_many(found)
    eventually(lambda: not watch.is_alive(), what="the process ends")
    program.wait()
    assert program.process.returncode == 0
    assert program.told("functions run on after the grace, and end with this process")
    last = {row[0]: row[3] for row in program.lines("tick")}
    twice = max(last[each] - taken[each] for each in JOBS) - watch.time.stalled
    assert twice < LATEST, "no job runs twice at once, but while it ends"
    return watch.took


@pytest.mark.parametrize("name", EACH)
def test_a_process_ends_soon_after_its_grace_with_jobs_that_hang(begin: Begin, jobs: Queue, name: str) -> None:
    assert ended(begin, jobs, name) < GRACE + LATEST


def test_a_command_waits_for_what_ends_when_it_is_told_to(begin: Begin, jobs: Queue) -> None:
    jobs.write(["heeds", {"name": "a"}], shard_key="a")
    program = begin("beside-async")
    eventually(lambda: program.lines("tick"), 60)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    assert program.lines("tick")[-1][0] == "left"
    assert not program.told("run on after the grace")


@pytest.mark.timeout(900)  # it starts 20 commands, which takes a busy machine 10 s each
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", EACH)
def test_it_does_so_each_time(
    begin: Begin, jobs: Queue, name: str, record_property: Callable[[str, object], None]
) -> None:
    times = sorted(ended(begin, jobs, name) for _ in range(20))
    record_property("note", f"{name}: ended {statistics.median(times):.2f} s after SIGTERM (median), {times[-1]:.2f} s")
    assert times[-1] < GRACE + LATEST
