"""A program with workers, as a process of its own; what it handled is in its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.worker.handlers import noted

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """`python -m WORDS` for the server at *url*, after the words *before*; what it handled goes to the file *log*."""

    def __init__(
        self, url: str, log: Path, *words: str, before: Sequence[str] = (), python: str = sys.executable
    ) -> None:
        self.log = log
        self.errors = log.with_suffix(f".{time.monotonic_ns()}.err")
        command = [*before, python, "-W", "error", "-m", *words]
        environment = os.environ | {"SHARDQ_URL": url, "SHARDQ_TEST_LOG": str(log), "PYTHONFAULTHANDLER": "1"}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=errors)

    def lines(self, what: str) -> list[tuple[str, int, int, float]]:
        """(payload, delivery count, pid, time) of each line."""
        rows = noted(self.log)
        return [(row[1], int(row[2]), int(row[3]), float(row[4])) for row in rows if row[0] == what]

    def told(self, text: str) -> bool:
        return text in self.errors.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code. A program that does not end says where its threads are, and so do its processes."""
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in (*children_of(self.process.pid), self.process.pid):
                os.kill(pid, signal.SIGABRT)
            self.process.wait(30)
            raise AssertionError(f"it did not end within 30 s:\n{self.errors.read_text()}") from None


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
