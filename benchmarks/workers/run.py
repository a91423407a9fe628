"""Measures one contender in one round, on a fresh server.

The worker is warmed up and paused, the jobs are enqueued, and the worker goes on. So enqueueing and working are
measured separately, and starting a worker is not measured.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.prior_art import connect
from benchmarks.settings import Settings, place
from benchmarks.workers.contenders import Contender, forget
from benchmarks.workers.counting import MARK, RAN
from benchmarks.workers.processes import Enqueuer, Worker, Workers

WARM = 200
LOOK = 0.002
PATIENCE = 60.0


class Run(NamedTuple):
    """µs per job, by the clock and of CPU: enqueueing it, and working it off."""

    enqueue: float
    work: float
    enqueuer_cpu: float
    enqueue_server_cpu: float
    worker_cpu: float
    server_cpu: float


def measured(contender: Contender, settings: Settings) -> Run:
    """Run a contender. A slow one is stopped after `settings.seconds`; the jobs that it has done by then count."""
    with place(replace(settings, link="tcp")) as here, connect(here.url) as server:
        try:
            with Worker(contender, here.url) as worker, Enqueuer(contender, here.url) as enqueuer:
                return _measured(Bench(contender, here.url, server, worker, enqueuer), settings)
        finally:
            forget(here.url)


class Bench(NamedTuple):
    """A contender with its server, its worker and the process that enqueues."""

    contender: Contender
    url: str
    server: Any
    worker: Worker | Workers
    enqueuer: Enqueuer

    def left(self) -> int:
        """How many jobs are not settled yet."""
        return self.contender.left(self.server, self.url)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for `condition`."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if not self.worker.running() or time.monotonic() > deadline:
                raise AssertionError(f"{self.contender.name}: {what} is missing, {self.left()} jobs are left")
            time.sleep(LOOK)

    def marked(self) -> int:
        """Enqueue a job that reports how many jobs ran, and wait for the report."""
        self.server.delete(RAN)
        self.enqueuer.enqueue(1, MARK)
        self.wait("the mark", lambda: self.server.exists(RAN))
        return int(self.server.get(RAN))

    def check_ran(self, number: int) -> None:
        """Whether exactly `number` jobs ran. A mark may be quicker than a job of another thread."""
        if not self.contender.forks:
            self.wait(f"one of {number} jobs", lambda: self.marked() >= number)
            assert self.marked() == number, f"{self.contender.name}: a job ran twice"

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far: the worker's and the server's."""
        info = self.server.info("cpu")
        return self.worker.cpu(), float(info["used_cpu_user"] + info["used_cpu_sys"])


def _measured(bench: Bench, settings: Settings) -> Run:
    payload, number = "x" * settings.payload, settings.messages
    bench.enqueuer.enqueue(WARM, payload)
    bench.marked()
    bench.wait("the end of the warm-up", lambda: not bench.left())
    bench.worker.pause()
    idle = bench.cpu()
    wrote = bench.enqueuer.enqueue(number, payload)
    before = bench.cpu()
    bench.worker.signal(signal.SIGCONT)
    done, rate = _drained(bench, number, settings.seconds)
    after = bench.cpu()
    if done == number:
        bench.check_ran(number + WARM)
    worker, server = (1e6 * (late - early) / done for early, late in zip(before, after, strict=True))
    enqueued = 1e6 * (before[1] - idle[1]) / number
    return Run(1e6 * wrote["wall"] / number, 1e6 / rate, 1e6 * wrote["cpu"] / number, enqueued, worker, server)


def _drained(bench: Bench, number: int, seconds: float) -> tuple[int, float]:
    """How many jobs were settled, and how many in a second, from the first that were seen to be."""
    began = last = time.monotonic()
    deadline, left = began + PATIENCE, number
    while left == number:  # waking up is not measured
        if last > deadline:
            raise AssertionError(f"{bench.contender.name}: nothing ran within {PATIENCE:g} s")
        began, left, last = last, _look(bench), time.monotonic()
    if not left:
        return number, number / (last - began)
    began, first = last, left
    while left and last - began < seconds:
        left, last = _look(bench), time.monotonic()
    return number - left, (first - left) / (last - began)


def _look(bench: Bench) -> int:
    time.sleep(LOOK)
    return bench.left()
