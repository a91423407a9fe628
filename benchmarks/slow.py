"""slow: jobs that take time, 64 at once, with a backlog of 100 tenants: what a job costs worker and server.

Beside BullMQ and huey, and with `--base` beside another commit. Then jobs that come one at a time to an idle worker;
and how long the job of a quiet tenant waits beside 100 floods of jobs of 20 ms.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.calls.trees import tree_of
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile, times, us
from benchmarks.settings import Place, place
from benchmarks.workers.contenders import OTHERS, OURS, Contender, forget
from benchmarks.workers.counting import LATE, SINCE
from benchmarks.workers.environments import ROOT, present_of
from benchmarks.workers.processes import Enqueuer, Worker
from benchmarks.workers.run import Bench
from shardq import Client

SLOTS: Final = 64
LENGTHS: Final = (0.002, 0.02, 0.2, 2.0)
"""Seconds that a job takes."""
PEER, HUEY, OUR, ASYNC, BASE = "BullMQ", "huey", "shardq.Worker", "shardq.AsyncWorker", "base"
MOST_RATE: Final = 9000
"""No contender works off more jobs a second."""
MOST_OF_PEER: Final = 1.3
MOST_OF_HUEY: Final = 1.1
MOST_OF_BASE: Final = 1.03
"""What differs by less is noise."""
LEAST_BUSY: Final = 0.98
GOALS: Final = {"p50": 0.3, "p99": 1.0, "max": 1.5}
"""At most such a wait of a quiet tenant's job, in S."""
S: Final = 0.02
"""Seconds that a job takes beside the quiet tenant's."""
GAP: Final = 1 / 60
"""Seconds between two jobs of the quiet tenant, on average."""
PACE: Final = 0.005
"""Seconds between two jobs that come one at a time, on average."""
WARM: Final = 1.0
SCRIPTS: Final = ("fcall", "fcall_ro", "evalsha", "evalsha_ro", "eval")


class Run(NamedTuple):
    """Of one contender: µs of CPU a job, scripts a job, jobs a second."""

    client: float
    worker: float
    server: float
    scripts: float
    rate: float

    @property
    def cost(self) -> float:
        """What a job costs in all."""
        return self.client + self.worker + self.server


Runs = dict[str, list[Run]]


def run(place: Place) -> list[Table]:
    contenders, missing = present_of(_contenders(place))
    tables = [_backlog(place, contenders, missing, length) for length in LENGTHS]
    single = [_paced(each) for each in contenders if not each.name.endswith(ASYNC)]
    return [*tables, _one_by_one(place, single, missing), _beside_floods(place, contenders)]


# --- who ----------------------------------------------------------------------------------------------------------


def _contenders(place: Place) -> list[Contender]:
    ours = {each.name: each for each in OURS}
    others = {each.name: each for each in OTHERS}
    found = [_busy(ours[OUR]), _busy(ours[ASYNC])]
    if base := tree_of(place.settings.base):
        paths = {"PYTHONPATH": f"{base.folder}:{ROOT}", "PYTHONSAFEPATH": "1"}
        found += [replace(each, name=f"{BASE}: {each.name}", variables=each.variables | paths) for each in found]
    huey = others[HUEY]
    at = huey.command.index("-w") + 1
    found.append(replace(huey, command=(*huey.command[:at], str(SLOTS), *huey.command[at + 1 :])))
    return [*found, _busy(others[PEER])]


def _busy(contender: Contender) -> Contender:
    return replace(contender, variables={**contender.variables, "BENCH_AHEAD": "0", "BENCH_SLOTS": str(SLOTS)})


def _taking(contender: Contender, seconds: float) -> Contender:
    return replace(contender, variables={**contender.variables, "BENCH_TAKES": str(seconds)})


def _paced(contender: Contender) -> Contender:
    return replace(contender, variables={**contender.variables, "BENCH_WRITE": "single"})


@contextmanager
def _bench(where: Place, contender: Contender) -> Iterator[Bench]:
    with place(replace(where.settings, link="tcp")) as here, connect(here.url) as server:
        try:
            with Enqueuer(contender, here.url) as enqueuer, Worker(contender, here.url) as worker:
                yield Bench(contender, here.url, server, worker, enqueuer)
        finally:
            forget(here.url)


def _scripts(server: Any) -> int:
    stats = server.info("commandstats")
    return sum(stats[f"cmdstat_{each}"]["calls"] for each in SCRIPTS if f"cmdstat_{each}" in stats)


def _in_turns(
    contenders: Sequence[Contender], rounds: int, measured: Callable[[Contender], Run], dice: random.Random
) -> Runs:
    runs: Runs = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in dice.sample(contenders, len(contenders)):
            runs[contender.name].append(measured(contender))
    return runs


# --- a backlog ----------------------------------------------------------------------------------------------------


def _backlog(place: Place, contenders: Sequence[Contender], missing: dict[str, str], length: float) -> Table:
    chosen = place.settings
    seconds = max(chosen.seconds / 10, 3 * length)
    runs = _in_turns(
        [_taking(each, length) for each in contenders],
        chosen.rounds,
        lambda contender: _with_backlog(place, contender, length, seconds),
        random.Random(chosen.seed),
    )
    return _table(place, f"slow-{1000 * length:g}ms", f"Jobs of {1000 * length:g} ms, {SLOTS} at once", runs, missing,
                  f"{chosen.rounds} interleaved rounds of {seconds:g} s", length)  # fmt: skip


def _with_backlog(place: Place, contender: Contender, length: float, seconds: float) -> Run:
    warm = WARM + length
    enough = round(1.2 * min(MOST_RATE, SLOTS / length) * (warm + seconds))
    with _bench(place, contender) as bench:
        bench.worker.pause()
        bench.enqueuer.enqueue(enough, "x" * place.settings.payload)
        bench.worker.signal(signal.SIGCONT)
        bench.wait("the first job", lambda: bench.left() < enough)
        time.sleep(warm)
        began, left, cpu, scripts = time.monotonic(), bench.left(), bench.cpu(), _scripts(bench.server)
        time.sleep(seconds)
        done, took, end, late = left - bench.left(), time.monotonic() - began, bench.cpu(), _scripts(bench.server)
        worker, server = (1e6 * (after - before) / max(1, done) for before, after in zip(cpu, end, strict=True))
        return Run(0.0, worker, server, (late - scripts) / max(1, done), done / took)


# --- one at a time ------------------------------------------------------------------------------------------------


def _one_by_one(place: Place, contenders: Sequence[Contender], missing: dict[str, str]) -> Table:
    chosen = place.settings
    runs = _in_turns(contenders, chosen.rounds, lambda contender: _idle(place, contender), random.Random(chosen.seed))
    context = f"{chosen.rounds} interleaved rounds, a job each {1000 * PACE:g} ms on average"
    return _table(place, "slow-single", "Jobs that come one at a time to an idle worker", runs, missing, context)


def _idle(place: Place, contender: Contender) -> Run:
    payload, dice = "x" * place.settings.payload, random.Random(place.settings.seed)
    count = round(place.settings.seconds / 10 / PACE)
    with _bench(place, contender) as bench:
        bench.marked()
        time.sleep(WARM)
        cpu, scripts, began, client = bench.cpu(), _scripts(bench.server), time.monotonic(), 0.0
        for _ in range(count):
            client += bench.enqueuer.enqueue(1, payload)["cpu"]
            time.sleep(dice.expovariate(1 / PACE))
        end, late, took = bench.cpu(), _scripts(bench.server), time.monotonic() - began
        worker, server = (1e6 * (after - before) / count for before, after in zip(cpu, end, strict=True))
        return Run(1e6 * client / count, worker, server, (late - scripts) / count, count / took)


# --- a quiet tenant -----------------------------------------------------------------------------------------------


def _beside_floods(place: Place, contenders: Sequence[Contender]) -> Table:
    ours = [_taking(each, S) for each in contenders if each.ours]
    data = {each.name: [_waits(place, each, seed) for seed in range(place.settings.rounds)] for each in ours}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    worst = {
        name: {what: max(percentile(waits, share) for waits in runs) for what, share in shares.items()}
        for name, runs in data.items()
    }
    rows = [(name, *(f"{worst[name][what]:.2f}" for what in shares), str(sum(map(len, data[name])))) for name in data]
    goals = [
        Target(f"{OUR}: {what} of a quiet tenant's waits in the worst run", worst[OUR][what], most, True, " S")
        for what, most in GOALS.items()
    ]
    return Table(
        "slow-quiet",
        f"Waits of a quiet tenant beside 100 floods of jobs of {1000 * S:g} ms (S), in S, in the worst run",
        place.described(f"{place.settings.rounds} runs of {place.settings.seconds / 2:g} s"),
        ("worker", *shares, "jobs"), rows, goals, data,
    )  # fmt: skip


def _waits(place: Place, contender: Contender, seed: int) -> list[float]:
    """How long the jobs of quiet tenants waited until one began, in S."""
    dice, seconds = random.Random(seed), place.settings.seconds / 2
    with _bench(place, contender) as bench, Client.from_url(bench.url) as client:
        bench.enqueuer.enqueue(round(SLOTS / S * (WARM + seconds) * 1.2), "x" * place.settings.payload)
        queue = client.queue("jobs", create=True)
        bench.wait("a job", lambda: queue.stats().in_flight)
        time.sleep(WARM)
        end, sent = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            queue.write(f"{SINCE}{time.monotonic_ns()}", shard_key=f"quiet-{sent}")
            sent += 1
            time.sleep(dice.expovariate(1 / GAP))
        bench.wait("a quiet job", lambda: bench.server.llen(LATE) == sent)
        return [int(late) / 1e9 / S for late in bench.server.lrange(LATE, 0, -1)]


# --- tables -------------------------------------------------------------------------------------------------------


def _table(
    place: Place, name: str, title: str, runs: Runs, missing: dict[str, str], repeated: str, length: float = 0.0
) -> Table:
    first = "slots busy" if length else "client CPU"
    columns = ("worker", "jobs/s", first, "worker CPU", "server CPU", "in all", f"/ {PEER}", "scripts a job")
    rows = [_row(name, own, runs.get(PEER), length) for name, own in runs.items()]
    rows += [(name, f"left out: {why}", *[""] * (len(columns) - 2)) for name, why in missing.items()]
    data = {name: [each._asdict() for each in own] for name, own in runs.items()}
    return Table(name, title, place.described(repeated), columns, rows, [*_targets(runs, length)], data)


def _targets(runs: Runs, length: float) -> Iterator[Target]:
    own = runs[OUR]
    if not length and HUEY in runs:
        yield Target(f"{OUR}, CPU of a job, of {HUEY}'s", _ratio(own, runs[HUEY]), MOST_OF_HUEY, True)
    if length == S and PEER in runs:
        yield Target(f"{OUR}, CPU of a job, of {PEER}'s", _ratio(own, runs[PEER]), MOST_OF_PEER, True)
    if f"{BASE}: {OUR}" in runs:
        yield Target(f"{OUR}, CPU of a job, of {BASE}'s", _ratio(own, runs[f"{BASE}: {OUR}"]), MOST_OF_BASE, True)
    if length >= S:
        yield Target(f"{OUR}, slots busy", _busy_share(own, length), LEAST_BUSY, unit="")


def _row(name: str, own: Sequence[Run], peer: Sequence[Run] | None, length: float) -> tuple[str, ...]:
    def middle(what: str) -> float:
        return float(median(getattr(each, what) for each in own))

    return (
        name,
        f"{middle('rate'):,.0f}",
        f"{_busy_share(own, length):.3f}" if length else us(middle("client")),
        *(us(middle(what)) for what in ("worker", "server", "cost")),
        times(_ratio(own, peer)) if peer else "",
        f"{middle('scripts'):.2f}",
    )


def _busy_share(own: Sequence[Run], length: float) -> float:
    return median(each.rate for each in own) * length / SLOTS


def _ratio(own: Sequence[Run], other: Sequence[Run]) -> float:
    """The share of the other's CPU time: the median over the rounds, each by itself."""
    return median(mine.cost / theirs.cost for mine, theirs in zip(own, other, strict=True))
