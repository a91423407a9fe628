"""Commands as process 1, as in a container: signals stop them, and nothing that their handlers leave stays a zombie."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardq import Queue
from tests.parts import AS_PROCESS_ONE, NAMESPACES
from tests.waiting import eventually
from tests.worker.program import Program, children_of

pytestmark = [NAMESPACES.needed]
LATER = pytest.mark.runs_in("test-all")
Begin = Callable[..., Program]


@pytest.fixture
def begin(url: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts `shardq worker` as process 1."""
    with ExitStack() as stack:

        def begin(handler: str, *words: str) -> Program:
            command = ["shardq.cli", "worker", f"tests.worker.handlers:{handler}", "--queue", "jobs", *words]
            program = Program(url, tmp_path / "log", *command, before=AS_PROCESS_ONE)
            stack.callback(program.process.wait, 30)
            stack.callback(program.process.kill)
            return program

        yield begin


def one_of(program: Program) -> int:
    """The process that is process 1 of its namespace."""
    (pid,) = children_of(program.process.pid)
    return pid


by_words = pytest.mark.parametrize(
    "words", [(), pytest.param(("--processes", "2"), marks=LATER)], ids=["one process", "several"]
)


@by_words
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=LATER)], ids=lambda number: number.name
)
def test_a_signal_drains(begin: Begin, jobs: Queue, words: Sequence[str], number: int) -> None:
    jobs.write_many([(n, f"t{n % 9}") for n in range(2000)])
    program = begin("quick", "--concurrency", "4", *words)
    eventually(lambda: len(program.lines("done")) > 20, 30)
    os.kill(one_of(program), number)
    assert program.wait() == 0
    now = jobs.stats()
    assert (now.in_flight, now.acked) == (0, len(program.lines("done")))


@LATER
def test_a_second_signal_ends_it_at_once(begin: Begin, jobs: Queue) -> None:
    jobs.write("m", shard_key="t")
    program = begin("deaf")
    eventually(lambda: program.lines("began"), 30)
    one = one_of(program)
    os.kill(one, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(0.5)  # the grace is much longer
    os.kill(one, signal.SIGTERM)
    assert program.wait() == 128 + signal.SIGTERM


@by_words
def test_what_handlers_leave_is_waited_for_and_their_own_programs_are_not(
    begin: Begin, jobs: Queue, words: Sequence[str]
) -> None:
    """A container had a zombie for each job, until it could start no process."""
    jobs.write_many([(n, f"t{n}") for n in range(8)])
    program = begin("leaves", *words)
    eventually(lambda: len(program.lines("done")) == 8, 30)
    one = one_of(program)
    eventually(lambda: len(children_of(one)) == 1, what="only the worker is left")
    os.kill(one, signal.SIGTERM)
    assert program.wait() == 0
