"""Several worker processes under one parent, which forwards signals and replaces processes that die."""

from __future__ import annotations

import contextlib
import logging
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
from shardq.cli.speech import Speech
from shardq.clock import SystemClock
from shardq.platforms import need_fork
from shardq.telemetry.family import current_family
from shardq.telemetry.pipe import Follower
from shardq.worker.signals import HANGUP, MAX_WAIT, worker_signals

RESTART = Exponential(base=0.5, cap=30.0)
LONG_LIFE = 60.0
"""The pause before a restart begins again with a process that lived longer than this many seconds."""


class Supervisor:
    """Runs `shardq worker` in *count* processes; *arguments* returns those of each process, numbered from 1."""

    def __init__(
        self, url: str, timeout: float, arguments: Callable[[int], list[str]], count: int, speech: Speech
    ) -> None:
        need_fork("--processes")
        self._arguments, self._speech = arguments, speech
        self._command = [sys.executable, "-m", "shardq.cli", "worker", "--timeout", str(timeout)]
        self._clock = SystemClock()
        self._environment = os.environ | {"SHARDQ_URL": url}  # not an argument: it may hold a password
        self._count = count
        self._members: dict[subprocess.Popen[bytes], int] = {}
        self._followers: dict[subprocess.Popen[bytes], Follower] = {}
        self._ended: queue.SimpleQueue[tuple[subprocess.Popen[bytes], float]] = queue.SimpleQueue()
        self._due: list[tuple[float, int]] = []  # when to start which number again
        self._deaths = 0
        self._code = OK
        self._stops = False
        self._signals = 0  # without SIGHUP, which ends nobody at once

    def run(self) -> int:
        """Run until a signal came and all processes have ended; returns the exit code."""
        before = {number: signal.signal(number, self._forward) for number in worker_signals()}
        try:
            for number in range(1, self._count + 1):
                if not self._stops:
                    self._start(number)
            while self._members or (self._due and not self._stops):
                self._wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._code

    def _wait(self) -> None:
        """Wait until a process ends, or until it is time to start one."""
        left = MAX_WAIT
        if self._due and not self._stops:
            left = min(MAX_WAIT, max(0.0, min(self._due)[0] - self._clock.monotonic()))
        with contextlib.suppress(queue.Empty):
            self._handle_end(*self._ended.get(timeout=left))
        if self._due and not self._stops and min(self._due)[0] <= self._clock.monotonic():
            self._due.remove(due := min(self._due))
            self._start(due[1])

    def _start(self, number: int) -> None:
        family = current_family()
        ours, theirs = os.pipe() if family is not None else (-1, -1)
        # Its stdin tells it of the signals that come here, and it stops when that ends. A service manager may send the
        # same signal to the process itself: so it knows that the two are one. It has a session of its own, so that
        # Ctrl-C reaches it once, from here.
        process = subprocess.Popen(  # noqa: S603 (this program itself)
            [*self._command, *self._arguments(number), *([f"--metrics-pipe={theirs}"] if family is not None else [])],
            env=self._environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(theirs,) if family is not None else (),
        )
        if family is not None:
            os.close(theirs)
            self._followers[process] = Follower(ours, family)
        self._members[process] = number
        began = self._clock.monotonic()
        if self._stops:  # a signal came while the process was started
            self._tell(process, signal.SIGTERM)

        def watch() -> None:
            process.wait()
            self._ended.put((process, self._clock.monotonic() - began))

        threading.Thread(target=watch, name=f"shardq-supervisor-{process.pid}", daemon=True).start()

    def _handle_end(self, process: subprocess.Popen[bytes], age: float) -> None:
        number = self._members.pop(process)
        if process.stdin:
            process.stdin.close()
        if (follower := self._followers.pop(process, None)) is not None:
            follower.end()
        code = process.returncode
        if code == OK or (self._stops and self._signals <= 1 and code in (-signal.SIGTERM, -signal.SIGINT)):
            return  # the signal killed it while it was starting, when it had no messages
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if self._stops:
            self._code = max(self._code, code if code > 0 else FAILED)
            self._speech.say(f"worker process {process.pid} {how}", logging.WARNING)
        elif code == USAGE:
            self._speech.say(f"worker process {process.pid} {how}; the other processes are stopped", logging.ERROR)
            self._code = USAGE
            self._stop(signal.SIGTERM)
        else:
            self._deaths = 1 if age > LONG_LIFE else self._deaths + 1
            pause = RESTART(self._deaths, Random())
            self._due.append((self._clock.monotonic() + pause, number))
            self._speech.say(
                f"worker process {process.pid} {how}; another one starts in {pause:.1f} s", logging.WARNING
            )

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._stop(number)

    def _stop(self, number: int) -> None:
        self._stops = True
        self._signals += number != HANGUP
        for process in list(self._members):
            self._tell(process, number)

    def _tell(self, process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            if process.stdin:
                os.write(process.stdin.fileno(), bytes([number]))
        if self._signals > 1:  # it may hang in an import, and not read
            with contextlib.suppress(OSError):
                process.send_signal(number)
