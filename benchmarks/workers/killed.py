"""What happens to the jobs of a worker that is killed: how many never run, and how long do the others wait?

A worker is killed at work, with all its processes, and another one is started at once. The jobs take 1 to 9 ms, so that
one or more run at any moment. The contenders are killed one after the other; then all are watched together.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.prior_art import connect
from benchmarks.report import Table
from benchmarks.settings import Settings, place
from benchmarks.workers.contenders import Contender, forget
from benchmarks.workers.counting import EACH, SEEN
from benchmarks.workers.processes import Enqueuer, Worker
from benchmarks.workers.run import Bench

MOST = 1000
PATIENCE = 75.0
LOOK = 0.05


@dataclass(slots=True)
class Case:
    """One contender: how many jobs had run when it was killed; how many since then too, and the last after how long."""

    contender: Contender
    server: Any
    jobs: int
    killed: float
    patience: float
    before: int
    ran: int
    took: float = 0.0

    def watch(self) -> None:
        """Look how many have run, until all have or it took too long."""
        while self.ran < self.jobs and (after := time.monotonic() - self.killed) < self.patience:
            ran = int(self.server.scard(SEEN))
            if ran > self.ran:
                self.ran, self.took = ran, after
            time.sleep(LOOK)


def killed(contenders: Sequence[Contender], jobs: int, patience: float) -> list[Case]:
    """Kill a worker of each, start another, and wait."""
    cases, watches = [], []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(max(1, len(contenders))) as pool:
        for contender in contenders:
            cases.append(stack.enter_context(_killed(contender, jobs, patience)))
            watches.append(pool.submit(cases[-1].watch))
        for watch in watches:
            watch.result()
    return cases


@contextlib.contextmanager
def _killed(contender: Contender, jobs: int, patience: float) -> Iterator[Case]:
    with place(Settings(link="tcp")) as here, connect(here.url) as server:
        try:
            with Worker(contender, here.url) as worker, Enqueuer(contender, here.url) as enqueuer:
                bench = Bench(contender, here.url, server, worker, enqueuer)
                bench.marked()
                worker.pause()
                enqueuer.enqueue(jobs, EACH)
                worker.signal(signal.SIGCONT)
                bench.wait("a quarter of the jobs", lambda: server.scard(SEEN) >= jobs // 4)
                worker.signal(signal.SIGKILL)
                now = time.monotonic()
            ran = int(server.scard(SEEN))
            case = Case(contender, server, jobs, now, patience, ran, ran)
            with Worker(contender, here.url):
                yield case
        finally:
            forget(here.url)


def table(contenders: Sequence[Contender], context: str, jobs: int, patience: float) -> Table:
    """The table of what happened to the jobs."""
    cases = killed(contenders, jobs, patience)
    rows: list[tuple[str, ...]] = []
    for case in cases:
        missing = case.jobs - case.ran
        rows.append(
            (case.contender.name, f"{case.before:,}", f"{missing:,}", f"{case.took:.1f} s", case.contender.killed)
        )
    return Table(
        "worker-killed",
        f"{jobs:,} jobs of 1 to 9 ms; their worker is killed on the way and another one is started",
        context,
        (
            "worker",
            "ran before the kill",
            f"missing after {patience:g} s",
            "the last that came had run after the kill",
            "by its documentation",
        ),
        rows,
        data={case.contender.name: {"before": case.before, "ran": case.ran, "took": case.took} for case in cases},
    )
