"""`shardq worker --reload`: a worker in a child process, which is stopped and restarted when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from shardq.cli.exits import OK
from shardq.cli.speech import Speech
from shardq.platforms import need_fork
from shardq.worker.signals import HANGUP, SignalEvent, worker_signals

POLL_INTERVAL: Final = 0.5
"""Seconds between two looks at the files."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})

Stamps = Mapping[str, int]


class Reloader:
    """Runs `shardq worker` with *arguments* and the URL of *environment*, again after each change below *folder*."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, speech: Speech) -> None:
        need_fork("--reload")
        self._command = [sys.executable, "-m", "shardq.cli", "worker", *arguments]
        self._environment, self._folder, self._speech = environment, folder, speech
        self._stopped = SignalEvent()
        self._signals = 0  # without SIGHUP, which ends nobody at once
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run until a signal comes, and return the exit code of the worker that was running then."""
        before = {number: signal.signal(number, self._forward) for number in worker_signals()}
        try:
            while True:
                stamps = stamps_of(self._folder)
                # A session of its own, so that Ctrl-C reaches it once, from here. It stops when stdin ends.
                self._process = process = subprocess.Popen(  # noqa: S603 (this program itself)
                    self._command, env=self._environment, stdin=subprocess.PIPE, start_new_session=True
                )
                changed = self._changed(stamps)
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                code = process.wait()
                if process.stdin:
                    process.stdin.close()
                if changed is None:
                    return code if code >= OK else 128 - code
                self._speech.say(f"{changed} has changed: the worker restarts")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _changed(self, stamps: Stamps) -> str | None:
        """Wait until a file changes, and return its name; None when a signal came. A worker that failed waits, too."""
        while not self._stopped.wait(POLL_INTERVAL):
            now = stamps_of(self._folder)
            if different := sorted(stamps.items() ^ now.items()):
                return str(Path(different[0][0]).relative_to(self._folder))
        return None

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._signals += number != HANGUP
        if self._signals > 1 and self._process is not None:
            self._process.kill()  # a second signal ends it at once
        self._stopped.set()


def stamps_of(folder: Path) -> Stamps:
    """Return the times of the Python files below *folder*, but not of hidden folders, environments and packages."""
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".") and each not in _SKIPPED and not Path(root, each, "pyvenv.cfg").exists()
        ]
        for each in files:
            if each.endswith(".py"):
                path = Path(root, each)
                try:
                    found[str(path)] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue  # it was removed meanwhile
    return found
