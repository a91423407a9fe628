"""An action of which the process is killed half-way, and another takes it over: each message once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest

from shardq import Client, Message, Queue, Where
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.once, pytest.mark.timeout(180)]
LETTERS: Final = 120

WORKS: Final = """
import sys
from shardq import Client, Where
queue = Client.from_url(sys.argv[1]).queue(sys.argv[2])
action = queue.redrive(Where(error="TimeoutError"), rate=float(sys.argv[3]), by="night shift")
print(action.id, flush=True)
while not action.wait(timeout=0.05).is_over:
    print(action.done, flush=True)
print("done", flush=True)
sys.stdin.readline()
print(action.wait().done, flush=True)
"""
"""It says its id, and then how far it is."""


@contextmanager
def process(server: Server, queue: Queue, rate: float) -> Iterator[subprocess.Popen[str]]:
    """A process that redrives."""
    command = [sys.executable, "-c", WORKS, server.url, queue.name, str(rate)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGCONT)
        running.kill()
        running.communicate()


def lines(running: subprocess.Popen[str]) -> Iterator[str]:
    """What it prints."""
    assert running.stdout is not None
    for line in running.stdout:
        yield line.strip()


def silent_for(queue: Queue, server: Server, action_id: str, ms: int) -> None:
    """As if its process had not been heard of for so long."""
    with closing(server.client()) as plain:
        text: Any = plain.hget(queue.state.keys.actions, action_id)
        head, _, rest = text.partition(b"\n")
        words = head.split(b" ")
        words[2] = b"%d" % (int(words[2]) - ms)
        plain.hset(queue.state.keys.actions, action_id, b" ".join(words) + b"\n" + rest)


@pytest.fixture
def queue(server: Server, queue_name: str) -> Iterator[Queue]:
    """A queue with dead letters of two errors."""
    with Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=4, journal=100_000, visibility_timeout=120)
        queue.write_many([Message(number, f"t{number % 5}") for number in range(2 * LETTERS)])
        while held := queue.read_many(100):
            queue.reject_many(held[::2], "TimeoutError: no answer")
            queue.reject_many(held[1::2], "ValueError: bad")
        yield queue


def redriven(queue: Queue) -> Counter[str | None]:
    """How often each message was redriven."""
    return Counter(each.message_id for each in queue.journal(10_000).events if each.kind == "redriven")


def test_a_redrive_that_is_killed_half_way_and_taken_over_moves_each_once(server: Server, queue: Queue) -> None:
    chosen = {each.message_id for each in queue.dead(1000) if "TimeoutError" in each.last_error}
    with process(server, queue, 50) as running:
        said = lines(running)
        action_id = next(said)
        while int(next(said)) < LETTERS // 3:
            pass
        running.kill()
        running.wait()
    (seen,) = queue.actions()
    assert (seen.id, seen.state, seen.by) == (action_id, "running", "night shift")
    assert LETTERS // 3 <= seen.done < LETTERS
    silent_for(queue, server, action_id, 30_000)
    assert [each.state for each in queue.actions()] == ["abandoned"]
    status = queue.take_over(action_id).wait()
    assert (status.state, status.done, status.passed) == ("done", LETTERS, 0)
    assert redriven(queue) == Counter(chosen)
    assert (queue.stats().dead, queue.stats().backlog) == (LETTERS, LETTERS)


def test_one_that_stood_still_and_was_taken_over_does_nothing_more(server: Server, queue: Queue) -> None:
    chosen = {each.message_id for each in queue.dead(1000) if "TimeoutError" in each.last_error}
    with process(server, queue, 50) as running:
        said = lines(running)
        action_id = next(said)
        while int(next(said)) < LETTERS // 4:
            pass
        running.send_signal(signal.SIGSTOP)
        silent_for(queue, server, action_id, 30_000)
        taken = queue.take_over(action_id)
        taken.wait(timeout=0.5)
        running.send_signal(signal.SIGCONT)
        assert running.wait() != 0  # LeaseLost ended it
        status = taken.wait()
    assert (status.state, status.done, status.passed) == ("done", LETTERS, 0)
    assert redriven(queue) == Counter(chosen)


def test_others_stop_an_action_of_another_process(server: Server, queue: Queue) -> None:
    with process(server, queue, 20) as running:
        said = lines(running)
        action_id = next(said)
        eventually(lambda: queue.actions()[0].done > 2)
        assert queue.stop_action(action_id).state == "stopping"
        assert "done" in said  # its wait has ended
        (seen,) = queue.actions()
        assert (seen.state, seen.done < LETTERS) == ("stopped", True)
    assert sum(redriven(queue).values()) == seen.done
    assert queue.redrive(Where(error="TimeoutError")).wait().done == LETTERS - seen.done
