"""One run of the demo: start the processes, watch them, kill a worker half-way, and check the ledger."""

import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.demo.files import COPIES, Source, flooding, sources
from examples.demo.ledger import Job, Ledger
from examples.demo.processes import ROOT, Process
from examples.demo.show import Show
from examples.demo.table import draw, percentile, pickups, plural, seconds
from shardq import Client, Limits, Queue
from shardq.embedded import EmbeddedServer

VISIBILITY = 3.0  # seconds: short, so that the leases of the killed worker end while one watches
STUCK = 30.0  # seconds without any progress
LIMIT_FROM, LIMIT_FOR = 0.35, 4.0  # the part of the jobs after which the flood is limited, and for how many seconds
RATE = 20.0  # deliveries per second of the flood, meanwhile


class Demo:
    """One run of the demo."""

    def __init__(self, show: Show, limit: int | None, workers: int) -> None:
        self._show, self._limit, self._count = show, limit, workers
        self._files = sources(limit)
        self._noisy = flooding(self._files)
        self._noisy_files = sum(file.tenant == self._noisy for file in self._files)
        self._total = len(self._files) + self._noisy_files * (COPIES - 1)
        self._ledger = Ledger()
        self._problems: list[str] = []
        self._killed: Process | None = None
        self._killed_at, self._held = 0.0, list[str]()
        self._limited_at = self._freed_at = 0.0

    def run(self) -> int:
        """Run it; the exit code."""
        started = time.monotonic()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="shardq-demo-")))
            server = stack.enter_context(EmbeddedServer())
            jobs = stack.enter_context(Client.from_url(server.url)).queue("jobs", visibility_timeout=VISIBILITY)
            jobs.declare()
            self._introduce(server.name, jobs)
            self._start(stack, folder, server.url)
            self._show.begin(self._total)
            stack.callback(self._show.end)
            self._watch(jobs)
            self._stop()
            self._show.end()
            self._check_ledger(jobs)
        took = f"{time.monotonic() - started:.0f} s"
        text = f"{len(self._files):,} files, {self._total:,} jobs, none lost, none done twice, in {took}"
        self._show.verdict(self._problems, f"see above; after {took}" if self._problems else text)
        return 1 if self._problems else 0

    def _introduce(self, server: str, jobs: Queue) -> None:
        tenants = len({file.tenant for file in self._files})
        config = jobs.state.config
        self._show.title(f"shardq on {server}: {config.streams} streams, {config.streams_per_shard} per tenant")
        say = self._show.say
        say("input", f"{len(self._files):,} Python files of {tenants:,} packages, the standard library included")
        say("jobs", "parse one file each; packages are tenants, an API server enqueues")
        say("flood", f"{self._noisy} enqueues its {self._noisy_files} files {COPIES} times, before all others")
        say("workers", f"{self._count} processes; one is killed half-way, leases end after {VISIBILITY:g} s")

    def _start(self, stack: ExitStack, folder: Path, url: str) -> None:
        def process(name: str, *command: str) -> Process:
            started = Process(name, folder, *command)
            stack.callback(started.close)
            return started

        self._scaler = process("autoscaler", str(ROOT / "examples" / "autoscaler.py"), url, "2")
        self._workers = [
            process(f"worker-{n}", "-m", "examples.demo.worker", url, "RECORDS", str(VISIBILITY))
            for n in range(1, self._count + 1)
        ]
        numbers = (str(self._limit or 0), str(self._count))
        self._producer = process("api-server", "-m", "examples.demo.producer", url, "RECORDS", *numbers)
        self._processes = [self._scaler, self._producer, *self._workers]

    def _watch(self, jobs: Queue) -> None:
        """Watch until all jobs are done, or there is no progress any more."""
        last, progressed = -1, time.monotonic()
        while not (self._producer.ended() and jobs.len() == 0):
            self._read_on()
            self._limit_flood(jobs)
            if not self._killed and self._ledger.acked * 2 >= self._total:
                self._kill_one()
            if self._ledger.acked != last:
                last, progressed = self._ledger.acked, time.monotonic()
            dead = [each for each in self._processes if each.ended() and each not in (self._producer, self._killed)]
            if dead or time.monotonic() > progressed + STUCK:
                why = f"{dead[0].name} ended: {dead[0].last_error()}" if dead else f"no progress for {STUCK:g} s"
                self._problems.append(why)
                return
            time.sleep(0.02)

    def _read_on(self) -> None:
        for process in self._processes:
            for event in process.tail.news():
                self._ledger.enter(process.name, event)
        while self._scaler.lines:
            self._show.autoscaler(self._scaler.lines.pop(0))
        self._show.progress(self._ledger.acked, self._total)

    def _limit_flood(self, jobs: Queue) -> None:
        """Give the flood a rate while it runs, and take it back after a while. Nobody is told of it but Redis."""
        now = time.monotonic()
        if not self._limited_at and self._ledger.acked >= LIMIT_FROM * self._total:
            jobs.set_limits({self._noisy: Limits(rate=RATE, burst=1)})
            self._limited_at = now
            text = f"{self._noisy} gets {RATE:g} deliveries per second: set while all work, for {LIMIT_FOR:g} s"
            self._show.say("limit", text, "bold")
        elif self._limited_at and not self._freed_at and now >= self._limited_at + LIMIT_FOR:
            jobs.set_limits({self._noisy: Limits()})
            self._freed_at = time.monotonic()

    def _kill_one(self) -> None:
        """Kill the first worker that holds a lease. It is paused before, to be sure that it still holds one."""
        for worker in self._workers:
            if not self._ledger.held_by(worker.name):
                continue
            worker.pause()
            self._read_on()
            self._held = self._ledger.held_by(worker.name)
            if not self._held:
                worker.resume()
                continue
            worker.kill()
            self._killed, self._killed_at = worker, time.monotonic()
            text = f"SIGKILL to {worker.name} (process {worker.pid}), which holds {plural(len(self._held), 'lease')}"
            self._show.say("half-way", text, "bold")
            return

    def _stop(self) -> None:
        """Stop all processes; one that does not end with exit code 0 is a problem."""
        ends = [each.stop() for each in self._processes if each is not self._killed]
        self._problems += [problem for problem in ends if problem]
        self._read_on()

    def _check_ledger(self, jobs: Queue) -> None:
        killed = self._killed.name if self._killed else ""
        again = [job.takes[-1] for job in map(self._ledger.jobs.__getitem__, self._held) if job.takes[-1][0] != killed]
        if not self._killed:
            self._problems.append("no worker could be caught holding a lease: none was killed")
        if len(again) < len(self._held) or any(count < 2 for _, count, _, _ in again):
            self._problems.append("what the killed worker held was not delivered again")
        now, after = jobs.stats(), sources(self._limit)
        self._problems += self._ledger.problems(self._files, after, self._noisy, killed, now)
        self._show.table(draw(self._ledger, self._noisy, killed))
        if not self._problems:
            self._summarize(after, [at - self._killed_at for *_, at in again], now.acked)

    def _summarize(self, after: list[Source], again: list[float], acked: int) -> None:
        ledger, show = self._ledger, self._show
        waits = {noisy: percentile(pickups(self._jobs(noisy=noisy)), 0.99) for noisy in (False, True)}
        show.say("on disk", f"{len(after):,} files, counted anew: each a job, {self._noisy}'s {COPIES} times")
        show.say("books", f"{len(ledger.jobs):,} jobs written, {acked:,} acked, each once by one worker")
        if again:
            show.say(
                "redelivered",
                f"{plural(len(again), 'lease')} of the killed worker, {seconds(max(again))} after the kill: leases end "
                f"after {VISIBILITY:g} s",
            )
        if self._freed_at:
            show.say("limit", self._of_the_limit())
        show.say("pick-up p99", f"{seconds(waits[False])} for everybody else, {seconds(waits[True])} for {self._noisy}")
        if ledger.bad_python:
            show.say(
                "note",
                f"{plural(len(ledger.bad_python), 'file')} of test data cannot be parsed: finding out is the job",
            )

    def _of_the_limit(self) -> str:
        """What the limit did, in jobs per second: a second later, when the workers have done what they held by then."""
        begun, over = self._limited_at + 1, self._freed_at
        rates = {
            (noisy, which): self._taken(noisy, since, until) / (until - since)
            for noisy in (False, True)
            for which, since, until in (("before", 2 * begun - over - 1, begun - 1), ("meanwhile", begun, over))
        }
        if rates[True, "meanwhile"] > 2 * RATE:  # workers also do what they were delivered before
            self._problems.append(f"{rates[True, 'meanwhile']:.0f} jobs per second of {self._noisy} were delivered")
        flood, others = (
            f"{rates[noisy, 'meanwhile']:,.0f} per second, {rates[noisy, 'before']:,.0f} before"
            for noisy in (True, False)
        )
        return f"{self._noisy} {flood}; everybody else {others}"

    def _taken(self, noisy: bool, since: float, until: float) -> int:
        return sum(since <= at < until for job in self._jobs(noisy=noisy) for *_, at in job.takes)

    def _jobs(self, *, noisy: bool) -> list[Job]:
        return [job for job in self._ledger.jobs.values() if (job.tenant == self._noisy) == noisy]
