"""One run of the demo: start the processes, watch them, kill a worker half-way, and check what all of them recorded."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.demo.casualty import Casualty
from examples.demo.figures import percentile, seconds, short
from examples.demo.files import sources
from examples.demo.input import Input
from examples.demo.ledger import Ledger
from examples.demo.limit import Limit
from examples.demo.page import Page
from examples.demo.plan import FLOOD, Plan
from examples.demo.processes import ROOT, Process
from examples.demo.screens import Screens
from examples.demo.show import Show
from examples.demo.table import draw
from examples.demo.waits import Waits
from shardq import Client, Queue
from shardq.embedded import EmbeddedServer

VISIBILITY = 5.0  # seconds: short, so that the leases of the killed worker end while one watches
STUCK = 30.0  # seconds without any progress
LIMIT_FROM, KILL_FROM = 0.25, 0.5  # the part of the jobs after which the flood is limited, and a worker killed


class Demo:
    """One run of the demo."""

    def __init__(self, show: Show, files: int | None, workers: int, *, dashboard: bool = False) -> None:
        self._started = time.monotonic()
        self._show, self._given, self._count = show, Input(files), workers
        self._ledger = Ledger()
        self._waits = Waits(self._given.noisy)
        self._casualty = Casualty(self._ledger, self._read_on)
        self._plan: Plan | None = None
        self._wanted = 0  # workers, by the autoscaler
        self._problems: list[str] = []
        self._page = Page() if dashboard else None

    def run(self) -> int:
        """Run it; the exit code."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="shardq-demo-")))
            server = stack.enter_context(EmbeddedServer())
            jobs = stack.enter_context(Client.from_url(server.url)).queue("jobs", visibility_timeout=VISIBILITY)
            jobs.declare()
            self._limit = Limit(jobs, self._given.noisy, self._count)
            self._screens = Screens(server.url)
            stack.callback(self._screens.close)
            self._introduce(server.name, jobs)
            if self._page:
                self._show.say("page", f"open {self._page.open(stack, folder, server.url)}", "bold")
            self._start(stack, folder, server.url)
            self._show.begin("measuring what the workers can do here")
            stack.callback(self._show.end)
            self._watch(jobs)
            self._stop()
            self._show.end()
            self._judge(jobs)
            self._show.verdict(self._problems, self._verdict())
            if self._page:
                self._page.stay(self._show)
        return 1 if self._problems else 0

    def _introduce(self, server: str, jobs: Queue) -> None:
        given, say = self._given, self._show.say
        say("input", f"{len(given.files):,} Python files of {given.tenants:,} packages that are installed here")
        say("jobs", "parse one file each; the package that it belongs to is the tenant")
        config = jobs.state.config
        say("queue", f"{config.streams} streams on {server}, {config.streams_per_shard} for each tenant")
        say("workers", f"{self._count} processes; one is killed half-way")

    def _start(self, stack: ExitStack, folder: Path, url: str) -> None:
        def process(name: str, *command: str) -> Process:
            started = Process(name, folder, *command)
            stack.callback(started.close)
            return started

        self._workers = [
            process(f"worker-{n}", "-m", "examples.demo.worker", url, "RECORDS") for n in range(1, self._count + 1)
        ]
        records = [str(worker.records) for worker in self._workers]
        files = str(len(self._given.files))
        self._producer = process("api-server", "-m", "examples.demo.producer", url, "RECORDS", files, *records)
        self._scaler = process("autoscaler", str(ROOT / "examples" / "autoscaler.py"), url, "2")
        self._processes = [self._scaler, self._producer, *self._workers]

    def _watch(self, jobs: Queue) -> None:
        """Watch until all jobs are done, or there is no progress any more."""
        last, progressed = -1, time.monotonic()
        while not (self._producer.ended() and jobs.len() == 0):
            self._read_on()
            self._meddle()
            if self._ledger.acked != last:
                last, progressed = self._ledger.acked, time.monotonic()
            mortal = (self._producer, self._casualty.worker)
            dead = [each for each in self._processes if each.ended() and each not in mortal]
            if dead or time.monotonic() > progressed + STUCK:
                why = f"{dead[0].name} ended: {dead[0].last_error()}" if dead else f"no progress for {STUCK:g} s"
                self._problems.append(why)
                return
            time.sleep(0.02)

    def _read_on(self) -> None:
        """Read what the processes recorded and printed since the last time."""
        for process in self._processes:
            for event in process.tail.news():
                self._ledger.enter(process.name, event)
                self._waits.enter(event)
        while self._scaler.lines:
            self._wanted = json.loads(self._scaler.lines.pop(0))["workers"]
        if not self._plan and self._producer.lines:
            self._plan = Plan(**json.loads(self._producer.lines.pop(0)))
            self._explain(self._plan)
        if self._plan:
            text = f"{self._waits.now()}; autoscaler wants {self._wanted}"
            self._show.progress(self._ledger.acked, self._total(), text)

    def _total(self) -> int:
        """How many jobs there will be, so far as it is known."""
        flood, written = self._ledger.wrote[self._given.noisy], self._ledger.wrote.total()
        expected = 0 if self._producer.ended() or not self._plan else self._plan.others
        return flood + max(written - flood, expected)

    def _explain(self, plan: Plan) -> None:
        given, say = self._given, self._show.say
        say("measured", f"{self._count} workers can do {plan.jobs_per_second:,.0f} jobs a second here, at the moment")
        say("flood", f"{short(given.noisy)} keeps {plan.flood:,} jobs waiting: {FLOOD:g} s of work for all workers")
        part = f"{plan.share:.0%} of what workers can do, {plan.seconds:.0f} s"
        say("others", f"{given.tenants - 1} packages write job by job: {part}")

    def _meddle(self) -> None:
        """Limit the flood for a while, then kill a worker. Nobody is told of either."""
        if not self._plan:
            return
        done = self._ledger.acked / max(1, self._total())
        if not self._limit.begun and done >= LIMIT_FROM:
            self._limit.begin(self._plan.jobs_per_second)
        if not self._limit.end_in_time() or done < KILL_FROM:
            return
        if not self._screens.asked:
            self._screens.ask()
        if not self._casualty.worker:
            self._casualty.choose(self._workers)
            if self._casualty.worker:
                self._show.say("half-way", str(self._casualty), "bold")

    def _stop(self) -> None:
        """Stop all processes; one that does not end with exit code 0 is a problem."""
        ends = [each.stop() for each in self._processes if each is not self._casualty.worker]
        self._problems += [problem for problem in ends if problem]
        self._read_on()

    def _judge(self, jobs: Queue) -> None:
        """Compare what was recorded with the queue and the disk, and print what was seen."""
        if not self._producer.lines:
            self._problems.append("the API server did not come to its end")
            return
        wrote = json.loads(self._producer.lines[-1])
        due = self._given.due(wrote["flood"], wrote["others"])
        before, after = self._given.files, sources(len(self._given.files))
        taken = self._ledger.taken_of(self._given.noisy)
        found = [
            self._waits.problem(),
            self._casualty.problem(),
            self._limit.problem(taken),
            *self._ledger.problems(due, before, after, self._casualty.name, jobs.stats()),
        ]
        self._problems += [problem for problem in found if problem]
        self._show.table(draw(self._waits))
        if not self._problems:
            self._summarize(self._limit.told(taken), wrote["others"])
        self._show.headline(self._headline())
        self._look_back()

    def _summarize(self, limit: str, others: int) -> None:
        say, all_others = self._show.say, len(self._given.others)
        fit = "" if others == all_others else ": no more fit the time"
        say("files", f"{others:,} of the others' {all_others:,} files were taken{fit}")
        say("killed", self._casualty.redelivered())
        say("limit", limit)

    def _look_back(self) -> None:
        """Show what commands said half-way, while the flood waited."""
        for command, text in self._screens.told().items():
            self._show.screen(f"shardq {command}", text)
        self._problems += self._screens.problems()

    def _headline(self) -> str:
        waits = self._waits
        flood = seconds(percentile(waits.flood, 0.5))
        median, high = (seconds(percentile(waits.others, share)) for share in (0.5, 0.99))
        return f"{short(waits.noisy)} floods: its jobs wait {flood}. All others wait {median} (p99 {high})."

    def _verdict(self) -> str:
        took = time.monotonic() - self._started
        if self._problems:
            return f"see above; after {took:.0f} s"
        jobs = f"{len(self._ledger.jobs):,} jobs, each done once, in {took:.0f} s"
        return f"the flood delayed nobody else. {jobs}"
