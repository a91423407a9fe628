"""`shardq worker --metrics`: one port has the numbers of a worker, of all of its processes, and loses none."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardq import Queue
from tests.exporter.test_text import values
from tests.servers import Server
from tests.waiting import eventually
from tests.worker.handlers import noted
from tests.worker.program import Program

Begin = Callable[..., Program]
DONE = "messaging_process_duration_seconds_count"
SLOTS = "shardq_worker_slots"
STARTS = 120.0
"""Seconds within which processes start that import all that a worker needs, on a machine that is busy."""


@pytest.fixture
def begin(url: str, tmp_path: Path) -> Iterator[Begin]:
    with ExitStack() as stack:

        def begin(handler: str, *words: str, listen: str = "127.0.0.1:0") -> Program:
            command = ["shardq.cli", "worker", f"tests.worker.handlers:{handler}", "--queue", "jobs"]
            program = Program(url, tmp_path / "log", *command, "--metrics", listen, *words)
            stack.callback(program.process.wait, 30)
            stack.callback(program.process.kill)
            return program

        yield begin


def port_of(program: Program) -> int:
    """Where it said that it serves its numbers."""
    found = eventually(lambda: re.search(r"metrics on \S+:(\d+)", program.errors.read_text()))
    assert found
    return int(found[1])


def got(program: Program, path: str = "/metrics") -> tuple[int, str]:
    """The status and the body of a path."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port_of(program), timeout=60)) as connection:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def number(program: Program, name: str) -> float:
    """The sum of the lines of this name."""
    return sum(values(got(program)[1], name).values())


def pids(program: Program) -> set[int]:
    """The processes in which messages were handled."""
    return {int(line[3]) for line in noted(program.log)}


def write(jobs: Queue, count: int) -> None:
    jobs.write_many([(number, f"t{number % 9}") for number in range(count)])


@pytest.mark.parametrize(
    "words",
    [
        (),
        pytest.param(("--run-in", "processes"), marks=pytest.mark.runs_in("test-all")),
        pytest.param(("--processes", "2"), marks=pytest.mark.runs_in("test-all")),
        pytest.param(("--processes", "2", "--run-in", "processes"), marks=pytest.mark.runs_in("test-all")),
    ],
    ids=lambda words: " ".join(words) or "one",
)
def test_one_port_has_the_numbers_of_all(begin: Begin, jobs: Queue, words: Sequence[str]) -> None:
    write(jobs, 20)
    program = begin("quick", "--concurrency", "2", *words)
    eventually(lambda: number(program, DONE) == 20, STARTS, what="all that was done is counted")
    slots = 4 if "--processes" in words else 2  # the second process may begin when all is done
    eventually(lambda: number(program, SLOTS) == slots, STARTS, what="all processes tell")
    assert number(program, "shardq_message_pickup_delay_seconds_count") == 20
    assert got(program, "/healthz") == (200, "alive\n")
    assert got(program, "/readyz") == (200, "ready\n")
    assert got(program, "/queues/jobs")[0] == 404
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


@pytest.mark.runs_in("test-all")
def test_a_process_that_dies_takes_no_count_away(begin: Begin, jobs: Queue) -> None:
    write(jobs, 40)
    program = begin("quick", "--concurrency", "4", "--processes", "2")
    eventually(lambda: number(program, DONE) == 40, STARTS, what="all that was done is counted")
    victim = min(pids(program))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: number(program, SLOTS) == 4, what="its slots are gone")
    assert number(program, DONE) == 40
    eventually(lambda: number(program, SLOTS) == 8, STARTS, what="another one has begun")
    assert number(program, DONE) == 40
    write(jobs, 40)
    eventually(lambda: number(program, DONE) == 80, what="what others do is added")
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


@pytest.mark.runs_in("test-all")
def test_a_process_that_dies_takes_its_slots_away_though_one_that_it_forked_lives(begin: Begin, jobs: Queue) -> None:
    program = begin("forks", "--concurrency", "4", "--processes", "2")
    forked = list[int]()
    try:
        for number_of_kills in range(1, 3):
            eventually(lambda: number(program, SLOTS) == 8, STARTS, what="both processes tell")
            write(jobs, 1)
            eventually(lambda: len(noted(program.log)) == number_of_kills)  # noqa: B023
            child, _, _, parent, _ = noted(program.log)[-1]
            forked.append(int(child))
            os.kill(int(parent), signal.SIGKILL)
            eventually(lambda: number(program, SLOTS) == 4, what="its slots are gone")
            os.kill(forked[-1], 0)  # it lives
        eventually(lambda: number(program, SLOTS) == 8, STARTS, what="another one has begun")
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("words", [(), ("--run-in", "processes")], ids=["threads", "processes"])
def test_what_handlers_write_is_counted_where_they_run(begin: Begin, jobs: Queue, words: Sequence[str]) -> None:
    write(jobs, 6)
    program = begin("writes", "--concurrency", "2", *words)
    eventually(lambda: number(program, "messaging_client_sent_messages_total") == 6, STARTS)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


@pytest.mark.parametrize("words", [(), pytest.param(("--processes", "2"), marks=pytest.mark.runs_in("test-all"))])
def test_a_port_that_is_taken_is_one_line_before_anything_is_read(
    begin: Begin, jobs: Queue, words: Sequence[str]
) -> None:
    write(jobs, 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = begin("quick", *words, listen=f"127.0.0.1:{port}")
        assert program.wait() == 2
    assert program.errors.read_text() == f"shardq: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert jobs.stats().delivered == 0


@pytest.mark.runs_in("test-all")
def test_the_numbers_are_there_while_redis_is_away(begin: Begin, jobs: Queue, default_server: Server) -> None:
    write(jobs, 5)
    program = begin("quick", "--concurrency", "4")
    eventually(lambda: number(program, DONE) == 5)
    default_server.pause()
    try:
        eventually(lambda: got(program, "/readyz")[0] == 503, 60)
        assert number(program, DONE) == 5
        assert got(program, "/healthz")[0] == 200
    finally:
        default_server.resume()
    eventually(lambda: got(program, "/readyz")[0] == 200)
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
