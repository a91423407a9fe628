"""Several worker processes under one parent, which forwards signals and replaces, audibly, what dies."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from random import Random
from types import FrameType

from shardq.backoff import Exponential
from shardq.cli.exits import FAILED, OK, USAGE
from shardq.cli.shell import remark
from shardq.clock import SystemClock
from shardq.worker.signals import MAX_WAIT, stop_signals

RESTART = Exponential(base=0.5, cap=30.0)
LONG_LIFE = 60.0
"""Seconds after which a process that dies is taken for a new misfortune, not for one more of a row."""


class Supervisor:
    """Runs `shardq worker` *count* times, with the *words* of each, numbered from 1."""

    def __init__(self, url: str, timeout: float, words: Callable[[int], list[str]], count: int) -> None:
        self._words = words
        self._command = [sys.executable, "-m", "shardq.cli", "worker", "--timeout", str(timeout)]
        self._clock = SystemClock()
        self._environment = os.environ | {"SHARDQ_URL": url}  # not a word of the command: it may hold a password
        self._count = count
        self._members: dict[subprocess.Popen[bytes], int] = {}
        self._ended: queue.SimpleQueue[tuple[subprocess.Popen[bytes], float]] = queue.SimpleQueue()
        self._due: list[tuple[float, int]] = []  # when to start another one, of which number
        self._deaths = 0
        self._code = OK
        self._signals = 0

    def run(self) -> int:
        """Until a signal came and all have ended; the exit code."""
        before = {number: signal.signal(number, self._forward) for number in stop_signals()}
        try:
            for number in range(1, self._count + 1):
                self._start(number)
            while self._members or (self._due and not self._signals):
                self._wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._code

    def _wait(self) -> None:
        """Wait for the next end of a process, or until it is time to start one."""
        left = MAX_WAIT
        if self._due and not self._signals:
            left = min(MAX_WAIT, max(0.0, min(self._due)[0] - self._clock.monotonic()))
        with contextlib.suppress(queue.Empty):
            self._buried(*self._ended.get(timeout=left))
        if self._due and not self._signals and min(self._due)[0] <= self._clock.monotonic():
            self._due.remove(due := min(self._due))
            self._start(due[1])

    def _start(self, number: int) -> None:
        # In a session of its own: Ctrl-C in the terminal comes once, from here. It ends when its stdin does.
        process = subprocess.Popen(  # noqa: S603 (this program itself)
            [*self._command, *self._words(number)], env=self._environment, stdin=subprocess.PIPE, start_new_session=True
        )
        self._members[process] = number
        began = self._clock.monotonic()
        if self._signals:  # the signal came in between
            process.send_signal(signal.SIGTERM)

        def watch() -> None:
            process.wait()
            self._ended.put((process, self._clock.monotonic() - began))

        threading.Thread(target=watch, name=f"shardq-supervisor-{process.pid}", daemon=True).start()

    def _buried(self, process: subprocess.Popen[bytes], age: float) -> None:
        number = self._members.pop(process)
        if process.stdin:
            process.stdin.close()
        code = process.returncode
        if code == OK or (self._signals == 1 and code in (-signal.SIGTERM, -signal.SIGINT)):
            return  # killed by the signal itself: it was only starting, and held nothing
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if self._signals:
            self._code = max(self._code, code if code > 0 else FAILED)
            remark(f"worker process {process.pid} {how}")
        elif code == USAGE:
            remark(f"worker process {process.pid} {how}: ending the others")
            self._code = USAGE
            self._stop(signal.SIGTERM)
        else:
            self._deaths = 1 if age > LONG_LIFE else self._deaths + 1
            pause = RESTART(self._deaths, Random())
            self._due.append((self._clock.monotonic() + pause, number))
            remark(f"worker process {process.pid} {how}; another one starts in {pause:.1f} s")

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._stop(number)

    def _stop(self, number: int) -> None:
        self._signals += 1
        if not self._members:
            sys.exit(self._code)
        for process in list(self._members):
            with contextlib.suppress(OSError):
                process.send_signal(number)
