"""slow: jobs that take time, 64 at once, with a backlog of 100 tenants: what a job costs worker and server.

Beside BullMQ, huey and dramatiq, in one worker process and in several. Then jobs that come one at a time to an idle
worker; and how long the job of a quiet tenant waits beside 100 floods of jobs of 20 ms. `--only` takes the tables whose
names have one of its texts: slow-2ms, slow-20ms, slow-200ms, slow-2000ms, slow-processes, slow-single, slow-quiet.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile, times, us
from benchmarks.rounds import middle, numbers, ratio, take_turns
from benchmarks.settings import Place, place
from benchmarks.workers.contenders import OTHERS, OURS, Contender, forget
from benchmarks.workers.counting import LATE, SINCE
from benchmarks.workers.environments import present_of
from benchmarks.workers.processes import Enqueuer, Workers
from benchmarks.workers.run import Bench
from shardq import Client

SLOTS: Final = 64
PROCESSES: Final = 4
"""Of a worker that has several, which share the slots."""
LENGTHS: Final = (0.002, 0.02, 0.2, 2.0)
"""Seconds that a job takes."""
PEER, HUEY, DRAMATIQ, OUR, ASYNC = "BullMQ", "huey", "dramatiq", "shardq.Worker", "shardq.AsyncWorker"
MOST_RATE: Final = 9000
"""No contender works off more jobs a second."""
MOST_OF_PEER: Final = 1.3
MOST_OF_HUEY: Final = 1.1
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


def run(place: Place) -> Iterator[Table]:
    """Those that `--only` names."""
    contenders, missing = present_of(_contenders(SLOTS))
    several, _ = present_of(_contenders(SLOTS // PROCESSES))
    tables: dict[str, Callable[[], Table]] = {
        _name(length): lambda length=length: _backlog(place, contenders, missing, length)  # type: ignore[misc]
        for length in LENGTHS
    }
    tables |= {
        "slow-processes": lambda: _backlog(place, several, missing, S, PROCESSES),
        "slow-single": lambda: _one_by_one(place, contenders, missing),
        "slow-quiet": lambda: _beside_floods(place, contenders),
    }
    for name, made in tables.items():
        if any(word in name for word in place.settings.only.split(",")):
            yield made()


def _name(length: float) -> str:
    return f"slow-{1000 * length:g}ms"


# --- who ----------------------------------------------------------------------------------------------------------


def _contenders(slots: int) -> list[Contender]:
    """Each runs so many jobs at once."""
    by_name = {each.name: each for each in (*OURS, *OTHERS)}
    variables = {"BENCH_AHEAD": "0", "BENCH_SLOTS": str(slots)}
    found = []
    for name in (OUR, ASYNC, HUEY, DRAMATIQ, PEER):
        contender = by_name[name]
        command = _replaced(contender.command, {HUEY: "-w", DRAMATIQ: "--threads"}.get(name, ""), str(slots))
        found.append(replace(contender, command=command, variables={**contender.variables, **variables}))
    return found


def _replaced(command: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """The command with another value of an option; "" for none."""
    at = command.index(option) + 1 if option else len(command)
    return (*command[:at], value, *command[at + 1 :]) if option else command


def _taking(contender: Contender, seconds: float) -> Contender:
    return replace(contender, variables={**contender.variables, "BENCH_TAKES": str(seconds)})


def _paced(contender: Contender) -> Contender:
    return replace(contender, variables={**contender.variables, "BENCH_WRITE": "single"})


@contextmanager
def _bench(where: Place, contender: Contender, processes: int = 1) -> Iterator[Bench]:
    with place(replace(where.settings, link="tcp")) as here, connect(here.url) as server:
        try:
            with Enqueuer(contender, here.url) as enqueuer, Workers(contender, here.url, processes) as worker:
                yield Bench(contender, here.url, server, worker, enqueuer)
        finally:
            forget(here.url)


def _scripts(server: Any) -> int:
    stats = server.info("commandstats")
    return sum(stats[f"cmdstat_{each}"]["calls"] for each in SCRIPTS if f"cmdstat_{each}" in stats)


def _in_turns(place: Place, contenders: Iterable[Contender], measured: Callable[[Contender], Run]) -> Runs:
    """Each run has processes of its own, so no round is left out."""
    named = {each.name: each for each in contenders}
    chosen = place.settings
    return take_turns(list(named), chosen.rounds, chosen.seed, lambda name: measured(named[name]), warm=0)


# --- a backlog ----------------------------------------------------------------------------------------------------


def _backlog(
    place: Place, contenders: Sequence[Contender], missing: dict[str, str], length: float, processes: int = 1
) -> Table:
    chosen = place.settings
    seconds = max(chosen.seconds / 10, 3 * length)
    taking = [_taking(each, length) for each in contenders]
    runs = _in_turns(place, taking, lambda contender: _with_backlog(place, contender, length, seconds, processes))
    title = f"Jobs of {1000 * length:g} ms, {SLOTS} at once"
    name = _name(length)
    if processes > 1:
        name, title = "slow-processes", f"{title} in {processes} worker processes"
    repeated = f"{chosen.rounds} interleaved rounds of {seconds:g} s"
    return _table(place, name, title, runs, missing, repeated, length)


def _with_backlog(place: Place, contender: Contender, length: float, seconds: float, processes: int) -> Run:
    warm = WARM + length
    enough = round(1.2 * min(MOST_RATE, SLOTS / length) * (warm + seconds))
    with _bench(place, contender, processes) as bench:
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
    paced = [_paced(each) for each in contenders if each.name != ASYNC]
    runs = _in_turns(place, paced, lambda contender: _idle(place, contender))
    context = f"{place.settings.rounds} interleaved rounds, a job each {1000 * PACE:g} ms on average"
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
    columns = (
        "worker", "jobs/s", first, "worker CPU", "server CPU", "in all", "rounds", f"/ {PEER}", "scripts a job"
    )  # fmt: skip
    rows = [_row(name, own, runs.get(PEER), length) for name, own in runs.items()]
    rows += [(name, f"left out: {why}", *[""] * (len(columns) - 2)) for name, why in missing.items()]
    return Table(name, title, place.described(repeated), columns, rows, [*_targets(runs, length)], numbers(runs))


def _targets(runs: Runs, length: float) -> Iterator[Target]:
    own = runs[OUR]
    if not length and HUEY in runs:
        yield Target(f"{OUR}, CPU of a job, of {HUEY}'s", ratio(own, runs[HUEY], "cost"), MOST_OF_HUEY, True)
    if length == S and PEER in runs:
        yield Target(f"{OUR}, CPU of a job, of {PEER}'s", ratio(own, runs[PEER], "cost"), MOST_OF_PEER, True)
    if length >= S:
        yield Target(f"{OUR}, slots busy", _busy_share(own, length), LEAST_BUSY, unit="")


def _row(name: str, own: Sequence[Run], peer: Sequence[Run] | None, length: float) -> tuple[str, ...]:
    costs = [each.cost for each in own]
    return (
        name,
        f"{middle(own, 'rate'):,.0f}",
        f"{_busy_share(own, length):.3f}" if length else us(middle(own, "client")),
        *(us(middle(own, what)) for what in ("worker", "server", "cost")),
        f"{us(min(costs))} to {us(max(costs))}",
        times(ratio(own, peer, "cost")) if peer else "",
        f"{middle(own, 'scripts'):.2f}",
    )


def _busy_share(own: Sequence[Run], length: float) -> float:
    return middle(own, "rate") * length / SLOTS
