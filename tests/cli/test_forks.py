"""The process that commands are forked from: a command that never ends is killed and named, and holds up nobody."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.forks import Forks
from tests.waiting import eventually


@pytest.fixture
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.fixture
def door() -> Iterator[Path]:
    """Where a command listens that runs until it is ended."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "metrics"


def endless(door: Path) -> tuple[str, ...]:
    return ("serve", "metrics", f"--listen=unix:{door}", "--url=redis://127.0.0.1:1")


class GivenUp(Exception):
    """What a timeout raises in the middle of a test."""


def test_a_command_that_takes_too_long_is_killed_and_named(forks: Forks, door: Path) -> None:
    with pytest.raises(AssertionError, match=rf"shardq serve metrics .*{door} .* longer than 0\.01 s, and was killed"):
        forks.run(endless(door), os.environ, b"", limit=0.01)
    assert forks.run(("--version",), os.environ, b"")[0] == 0


def test_a_test_that_is_given_up_takes_its_command_with_it(forks: Forks, door: Path) -> None:
    def give_up() -> None:
        try:
            eventually(lambda: answers(door), what="the command listens")
        finally:
            os.kill(os.getpid(), signal.SIGUSR1)

    def fail(*_: object) -> None:
        raise GivenUp

    before = signal.signal(signal.SIGUSR1, fail)
    watcher = threading.Thread(target=give_up)
    try:
        watcher.start()
        with pytest.raises(GivenUp):
            forks.run(endless(door), os.environ, b"")
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
    assert not answers(door)
    assert forks.run(("--version",), os.environ, b"")[0] == 0


def answers(door: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as mine:
        return mine.connect_ex(str(door)) == 0
