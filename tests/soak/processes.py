"""Processes that write and read, and what is done to them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from shardq import Queue
from tests.soak.load import Habits


class Processes:
    """The processes of one run, each with a log of its own in `folder`. All are gone when the context is left."""

    def __init__(self, url: str, queue: str, folder: Path, seed: int) -> None:
        self._where, self._folder = (url, queue), folder
        self._rng = random.Random(seed)
        self._seed, self._number, self.killed = seed, 0, 0
        self.producers: list[subprocess.Popen[bytes]] = []
        self.consumers: list[subprocess.Popen[bytes]] = []
        self._habits: dict[int, Habits] = {}
        self._logs: dict[int, Path] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.producers, *self.consumers):
            process.kill()
            process.wait()

    def produce(self, habits: Habits) -> None:
        """Start one producer."""
        self.producers.append(self._start("produce", habits))

    def consume(self, habits: Habits) -> None:
        """Start one consumer."""
        process = self._start("consume", habits)
        self.consumers.append(process)
        self._habits[process.pid] = habits

    def kill_one(self) -> None:
        """SIGKILL a random consumer that got something, if there is one, and start another in its place."""
        busy = [process for process in self.consumers if _holds_something(self._logs[process.pid])]
        if not busy:  # a busy machine needs its time to start them: killed ones only would get nothing done
            return
        victim = self._rng.choice(busy)
        self.consumers.remove(victim)
        assert victim.poll() is None, f"a consumer ended by itself: {self._last_words()}"
        victim.kill()
        victim.wait()
        self.killed += 1
        self.consume(self._habits.pop(victim.pid))

    def written(self) -> bool:
        """Whether every producer is done; fails if one ended with an error."""
        ends = [process.poll() for process in self.producers]
        assert not any(ends), f"a producer ended with an error: {self._last_words()}"
        return all(end == 0 for end in ends)

    def dismiss_producers(self) -> None:
        """SIGTERM every producer, and wait for it to end its last write."""
        self._dismiss(self.producers)

    def dismiss(self) -> None:
        """SIGTERM every consumer, and wait for it to settle what it holds."""
        self._dismiss(self.consumers)

    def _dismiss(self, processes: list[subprocess.Popen[bytes]], timeout: float = 60.0) -> None:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            # One that was not yet ready for the signal dies of it, and holds nothing.
            assert process.wait(timeout) in (0, -signal.SIGTERM), f"a process failed: {self._last_words()}"

    def _start(self, role: str, habits: Habits) -> subprocess.Popen[bytes]:
        name = f"{role[0]}{self._number}"
        self._number += 1
        command = [sys.executable, "-m", "tests.soak.load", role, *self._where, str(self._folder), name]
        with (self._folder / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen([*command, *replace(habits, seed=self._seed).words()], stderr=errors)
        self._logs[process.pid] = self._folder / f"{name}.jsonl"
        return process

    def _last_words(self) -> str:
        ends = [path.read_text()[-2000:] for path in sorted(self._folder.glob("*.err"))]
        return "\n".join(end for end in ends if end)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def drained(queue: Queue) -> bool:
    """Whether nothing is left to do."""
    stats = queue.stats()
    return stats.backlog + stats.in_flight + stats.delayed == 0
