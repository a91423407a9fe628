"""The processes of the demo. They are started, watched through the events that they record, and stopped or killed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from examples.demo.records import Tail

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # seconds for a process to end after SIGTERM


class Process:
    """One process: its records, its output, its errors."""

    def __init__(self, name: str, folder: Path, *command: str) -> None:
        self.name = name
        self.records = folder / f"{name}.jsonl"
        self.tail = Tail(self.records)
        self._errors = folder / f"{name}.err"
        self.lines: list[str] = []
        with self._errors.open("wb") as errors:
            # In a group of its own: Ctrl-C is for the demo, which ends the others.
            self.process = subprocess.Popen(
                [sys.executable, *(str(self.records) if word == "RECORDS" else word for word in command)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0,
            )  # fmt: skip
        assert self.process.stdout
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        with output:
            self.lines.extend(output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the process is stopped (or has ended)."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> str | None:
        """Send SIGTERM, and wait; returns what was wrong with the end, or None."""
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end within {PATIENCE:g} s"
        self._reader.join()
        if code == -signal.SIGTERM and not (self.lines or self.records.stat().st_size):
            return None  # it was still starting, and nobody needs it any more
        return f"{self.name} ended with code {code}: {self.last_error()}" if code else None

    def last_error(self) -> str:
        """The last line on its stderr."""
        return (self._errors.read_text(errors="replace").strip().splitlines() or ["(it said nothing)"])[-1]

    def close(self) -> None:
        """Kill the process if it still runs, and close its files."""
        if not self.ended():
            self.kill()
        self._reader.join()
        self.tail.close()
