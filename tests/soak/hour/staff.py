"""The processes of the hour: who has which post, and what is done to them. A post that is killed is filled again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.soak.hour.handlers import FOLDER
from tests.waiting import eventually

END: Final = 120.0
"""Seconds in which a process that is dismissed must have ended; a bound, not a measurement."""

START: Final = 300.0
"""Seconds in which each process has begun to work: on a busy machine so many take long to start."""


@dataclass(frozen=True)
class Post:
    """What a process does: the words after the interpreter. `{name}` among them is the process's own name.

    `first` are to end before the others do: they make what the others empty.
    """

    name: str
    words: Sequence[str]
    first: bool = False
    steady: bool = False
    """Whether its own faults are dealt otherwise."""


class Staff:
    """All processes. Whatever is left of them is killed when the context is left."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self._posts: dict[str, Post] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            _end(process.pid)
            process.kill()
            process.wait()

    def hire(self, post: Post) -> None:
        """Fill a post."""
        self._number += 1
        name = f"{post.name}.{self._number}"
        words = [each.replace("{name}", name) for each in post.words]
        with (self._folder / f"{name}.err").open("wb") as errors:
            self.processes[post.name] = subprocess.Popen(
                [sys.executable, *words], stderr=errors, stdout=errors, env={**os.environ, FOLDER: str(self._folder)}
            )
        self._posts[post.name], self._names[post.name] = post, name

    def posts(self) -> list[str]:
        """Those that any fault of a process may strike."""
        return [name for name, post in self._posts.items() if not post.steady]

    def replace(self, name: str) -> None:
        """SIGKILL, and another in its place."""
        self.check(name)
        process = self.processes[name]
        _end(process.pid)
        process.kill()
        process.wait()
        self.hire(self._posts[name])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, to the children of a command too."""
        for pid in (*children(self.processes[name].pid), self.processes[name].pid):
            os.kill(pid, number)

    def notes(self, name: str) -> Mapping[Path, int]:
        """How long the files are that a process, or its children, write."""
        pid = self.processes[name].pid
        names = [f"{self._names[name]}-*.jsonl", *(f"w{each}-*.jsonl" for each in (pid, *children(pid)))]
        return {path: path.stat().st_size for each in names for path in self._folder.glob(each)}

    def check(self, name: str) -> None:
        """Fail if a process has ended by itself."""
        process = self.processes[name]
        assert process.poll() is None, f"{name} ended by itself with {process.returncode}: {self._last_words(name)}"

    def dismiss(self, *, first: bool) -> None:
        """SIGTERM to those who make the work, or to all others; each ends in order."""
        leaving = {name: self.processes[name] for name, post in self._posts.items() if post.first == first}
        for name, process in leaving.items():
            self.check(name)
            process.send_signal(signal.SIGTERM)
        for name, process in leaving.items():
            assert process.wait(END) == 0, f"{name} ended with {process.returncode}: {self._last_words(name)}"
            del self.processes[name], self._posts[name]

    def pids(self) -> dict[str, int]:
        """Whom to measure."""
        return {name: process.pid for name, process in [*self.processes.items()]}

    def wait_ready(self) -> None:
        """Return once each has written something."""
        for name in self.posts():
            eventually(lambda name=name: self._ended(name) or self.notes(name), START, every=0.1, what=f"{name} works")  # type: ignore[misc]
            self.check(name)

    def works(self, name: str) -> bool:
        """Whether a process is there, and has written something."""
        return not self._ended(name) and bool(self.notes(name))

    def _ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def _last_words(self, name: str) -> str:
        return (self._folder / f"{self._names[name]}.err").read_text()[-3000:]


def children(pid: int) -> list[int]:
    """The processes that a command has started."""
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _end(pid: int) -> None:
    """Kill what a process started, before it is killed itself: `kill -9` of a machine's part takes both."""
    for each in children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
