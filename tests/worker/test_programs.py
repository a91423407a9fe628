"""Programs of several workers, or of a worker and a host: SIGTERM and Ctrl-C end them, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardq import Client, Queue
from tests.waiting import eventually
from tests.worker.program import Program

LATER = pytest.mark.runs_in("test-all")
Begin = Callable[[str], Program]
MANY = 2000  # messages in each queue: more than is done before a signal comes, however busy the machine is
BOTH = ("jobs", "others")


@pytest.fixture
def begin(url: str, tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as stack:

        def begin(name: str) -> Program:
            program = Program(url, tmp_path / "log", "tests.worker.programs", name)
            stack.callback(program.process.wait, 30)
            stack.callback(program.process.kill)
            return program

        yield begin


@pytest.fixture
def filled(client: Client) -> Callable[..., list[Queue]]:
    """Creates queues, with messages whose payloads begin with the queue's name."""

    def filled(*names: str) -> list[Queue]:
        queues = [client.queue(name, streams=8, visibility_timeout=30) for name in names]
        for queue in queues:
            queue.write_many([(f"{queue.name}{n}", f"t{n % 9}") for n in range(MANY)])
        return queues

    return filled


def nothing_is_lost(program: Program, queues: list[Queue]) -> None:
    """What was handled is acked, once; what was not waits, and is nobody's."""
    done = [row[0] for row in program.lines("done")]
    assert len(done) == len(set(done))
    for queue in queues:
        now, handled = queue.stats(), sum(payload.startswith(queue.name) for payload in done)
        assert 0 < handled < MANY
        assert (now.acked, now.backlog, now.in_flight, now.delayed) == (handled, MANY - handled, 0, 0)


def at_work(program: Program, queues: list[Queue]) -> bool:
    done = [row[0] for row in program.lines("done")]
    return all(sum(payload.startswith(queue.name) for payload in done) > 20 for queue in queues)


by_signal = pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=LATER)], ids=lambda number: number.name
)


@by_signal
@pytest.mark.parametrize(
    "name", ["alone", "tasks", "threads", pytest.param("loops", marks=LATER), pytest.param("kinds", marks=LATER)]
)
def test_a_signal_stops_all_workers_of_a_process(
    begin: Begin, filled: Callable[..., list[Queue]], name: str, number: int
) -> None:
    """Of two AsyncWorkers it ended the one that had begun last, and the process went on."""
    queues = filled("jobs") if name == "alone" else filled(*BOTH)
    program = begin(name)
    eventually(lambda: at_work(program, queues))
    program.signal(number)
    assert program.wait() == 0
    nothing_is_lost(program, queues)
    assert program.errors.read_text() == ""


@by_signal
@pytest.mark.parametrize("name", ["served", pytest.param("beside", marks=LATER)])
def test_a_signal_ends_uvicorn_and_the_worker_that_it_hosts(
    begin: Begin, filled: Callable[..., list[Queue]], name: str, number: int
) -> None:
    """The worker took the signal: uvicorn served on without it. Its statuses are those that it has without a worker."""
    queues = filled("jobs")
    program = begin(name)
    eventually(lambda: at_work(program, queues))
    program.signal(number)
    assert program.wait() == (-signal.SIGTERM if (name, number) == ("served", signal.SIGTERM) else 0)
    nothing_is_lost(program, queues)
    assert program.errors.read_text() == ""


hosts = pytest.mark.parametrize("name", ["gunicorn", pytest.param("forked", marks=LATER)])


@hosts
def test_a_signal_ends_gunicorn_and_the_worker_that_it_hosts(
    begin: Begin, filled: Callable[..., list[Queue]], name: str
) -> None:
    queues = filled("jobs")
    program = begin(name)
    eventually(lambda: at_work(program, queues))
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    nothing_is_lost(program, queues)


@hosts
@LATER
def test_gunicorn_begins_anew_at_a_hangup_with_another_worker(
    begin: Begin, filled: Callable[..., list[Queue]], name: str
) -> None:
    queues = filled("jobs")
    program = begin(name)
    eventually(lambda: at_work(program, queues))
    program.signal(signal.SIGHUP)
    eventually(lambda: len({row[2] for row in program.lines("done")}) == 2, what="another process works")
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    nothing_is_lost(program, queues)
