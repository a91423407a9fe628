"""What happens to the jobs of a worker that is killed: how many never run again, or how long they wait.

A worker is killed half way, with all its processes, and another one is started. The kills come one after the other; the
waiting is shared, since it costs nothing.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.prior_art import connect
from benchmarks.report import Table
from benchmarks.settings import Settings, place
from benchmarks.workers.contenders import Contender, forget
from benchmarks.workers.counting import EACH, SEEN
from benchmarks.workers.processes import Enqueuer, Worker
from benchmarks.workers.turn import Bench

JOBS = 2000
PATIENCE = 75.0
LOOK = 0.05


@dataclass(slots=True)
class Case:
    """One contender: how many jobs had run when it was killed, and how many then, in how many seconds, after it."""

    contender: Contender
    url: str
    server: Any
    jobs: int
    before: int
    restarted: float = 0.0
    ran: int = 0
    took: float = 0.0

    def look(self) -> bool:
        """Whether all have run."""
        ran = int(self.server.scard(SEEN))
        if ran > self.ran:
            self.ran, self.took = ran, time.monotonic() - self.restarted
        return ran == self.jobs


def killed(contenders: Sequence[Contender], jobs: int = JOBS, patience: float = PATIENCE) -> list[Case]:
    """Kill a worker of each, and wait for the others."""
    with contextlib.ExitStack() as stack:
        cases = [stack.enter_context(_killed(contender, jobs)) for contender in contenders]
        for case in cases:
            case.restarted = time.monotonic()
            stack.enter_context(Worker(case.contender, case.url))
        deadline = time.monotonic() + patience
        while not all([case.look() for case in cases]) and time.monotonic() < deadline:
            time.sleep(LOOK)
        return cases


@contextlib.contextmanager
def _killed(contender: Contender, jobs: int) -> Iterator[Case]:
    with place(Settings(link="tcp")) as here, connect(here.url) as server:
        try:
            with Worker(contender, here.url) as worker, Enqueuer(contender, here.url) as enqueuer:
                bench = Bench(contender, here.url, server, worker, enqueuer)
                bench.marked()
                worker.signal(signal.SIGSTOP)
                enqueuer.enqueue(jobs, EACH)
                worker.signal(signal.SIGCONT)
                bench.wait("a quarter of the jobs", lambda: server.scard(SEEN) >= jobs // 4)
                worker.signal(signal.SIGKILL)
            yield Case(contender, here.url, server, jobs, int(server.scard(SEEN)))
        finally:
            forget(here.url)


def table(contenders: Sequence[Contender], context: str) -> Table:
    """What came of it."""
    cases = killed(contenders)
    rows: list[tuple[str, ...]] = []
    for case in cases:
        missing = case.jobs - case.ran
        rows.append((case.contender.name, f"{case.before:,}", f"{missing:,}", f"{case.took:.1f} s", case.contender.killed))
    return Table(
        "worker-killed",
        f"{JOBS:,} jobs, whose worker is killed, and another started",
        context,
        ("worker", "ran before the kill", f"missing after {PATIENCE:g} s", "the last that came had run after", "by its documentation"),
        rows,
        data={case.contender.name: {"before": case.before, "ran": case.ran, "took": case.took} for case in cases},
    )
