"""worker: no-op jobs through one worker process, beside huey, dramatiq, arq, taskiq, BullMQ, RQ and Celery.

Each runs in an environment of its own (made under `.bench/` when it is first needed), in its best usual setting, on a
fresh server, one after the other; all enqueue the same jobs. `--only` takes those whose names have one of its texts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import middle, numbers, take_turns
from benchmarks.settings import Place, Settings
from benchmarks.workers import killed
from benchmarks.workers.contenders import GATHER, ONE, OTHERS, OURS, SINGLE, Contender
from benchmarks.workers.environments import present_of
from benchmarks.workers.run import Run, measured

JOBS_PER_MESSAGE = 4
"""How many jobs there are for each message of the settings; with fewer the fastest would be done too soon."""
ENQUEUEING = ("enqueuer_cpu", "enqueue_server_cpu")
PEER = "BullMQ"
PEERS_SHARE = {"shardq.Worker": 0.28, "shardq.Worker, one tenant": 0.18}
"""At most such a share of what a job costs the peer, with 100 tenants and with one."""
ENQUEUED = (("shardq.Worker, single writes", "one by one", 1.15), ("shardq.Worker", "100 per", 0.22))
"""At most such a share of the CPU that a job costs the cheapest peer which enqueues in this way."""
Runs = dict[str, list[Run]]


def run(place: Place) -> list[Table]:
    """Those that `--only` names."""
    words = place.settings.only.split(",")
    return compare(place, [each for each in (*OURS, *OTHERS) if any(word in each.name for word in words)])


def compare(place: Place, asked: Sequence[Contender], patience: float = killed.PATIENCE) -> list[Table]:
    """The tables of the contenders, without those whose packages cannot be fetched; the table names these."""
    if sys.platform != "linux":
        raise SystemExit("benchmarks.worker measures CPU time through /proc: run it on Linux")
    chosen = replace(place.settings, messages=JOBS_PER_MESSAGE * place.settings.messages, seconds=5.0)
    present, missing = present_of(asked)
    runs = _take_runs(present, chosen)
    jobs = min(killed.MOST, chosen.messages)
    kills = killed.table(_killed_once(present), place.described("one run"), jobs, patience)
    return [_rates(Place(place.server, chosen), runs, missing), kills, _settings(place, present)]


def _killed_once(contenders: Sequence[Contender]) -> list[Contender]:
    """One contender for each worker: the same worker may be there several times, with jobs written in other ways."""
    workers: dict[tuple[str, ...], Contender] = {}
    for each in contenders:
        if each.variables not in (SINGLE, GATHER, ONE) or each.command not in workers:
            workers[each.command] = each
    return list(workers.values())


def _take_runs(contenders: Sequence[Contender], chosen: Settings) -> Runs:
    """Each run has processes of its own, so no round is left out."""
    named = {each.name: each for each in contenders}
    return take_turns(list(named), chosen.rounds, chosen.seed, lambda name: measured(named[name], chosen), warm=0)


def _rate(own: Sequence[Run], what: str) -> float:
    return 1e6 / median(_cost(each, what) for each in own)


def _cost(each: Run, what: str) -> float:
    """µs per job; `both` is enqueueing, then working."""
    return each.enqueue + each.work if what == "both" else float(getattr(each, what))


def _rates(place: Place, runs: Runs, missing: dict[str, str]) -> Table:
    rivals = [other.name for other in OTHERS if other.name in runs]
    fastest = {what: max(rivals, key=lambda name: _rate(runs[name], what), default="") for what in ("work", "both")}
    rows = [_row(name, own, runs.get(fastest["work"])) for name, own in runs.items()]
    rows += [(name, f"left out: {why}", *[""] * 8) for name, why in missing.items()]
    targets = [
        Target(f"{ours.name}, {said}, against {name}", _ratio(runs[ours.name], runs[name], what), 5)
        for what, said in (("work", "worked"), ("both", "enqueued, then worked"))
        if (name := fastest[what])
        for ours in OURS
        if ours.name in runs
    ]
    targets += [
        Target(f"{name}, CPU of a job (worker and server), of BullMQ's", share, most, True)
        for name, most in PEERS_SHARE.items()
        if name in runs and PEER in runs
        for share in [_cpu_ratio(runs[name], runs[PEER], ("worker_cpu", "server_cpu"))]
    ]
    targets += [
        Target(f"{name}, CPU to enqueue a job (client and server), of {peer}'s", share, most, True)
        for name, way, most in ENQUEUED
        if name in runs and (peer := _cheapest(runs, way))
        for share in [_cpu_ratio(runs[name], runs[peer], ENQUEUEING)]
    ]
    columns = (
        "worker", "worked, jobs/s", "slowest to fastest round", "/ fastest other", "enqueued, jobs/s",
        "enqueued, then worked", "worker CPU", "server CPU", "enqueuer CPU", "server CPU of it",
    )  # fmt: skip
    return Table(
        "worker",
        f"{place.settings.messages:,} no-op jobs through one worker process",
        place.described(f"{place.settings.rounds} interleaved rounds, each on a fresh server, at most 5 s each"),
        columns,
        rows,
        targets,
        numbers(runs),
    )


def _ratio(own: Sequence[Run], other: Sequence[Run], what: str) -> float:
    """How many times the other's rate: the median over the rounds, each by itself."""
    return median(_cost(theirs, what) / _cost(mine, what) for mine, theirs in zip(own, other, strict=True))


def _cheapest(runs: Runs, way: str) -> str:
    """The peer that enqueues a job in this way with the least CPU."""
    peers = [other.name for other in OTHERS if other.name in runs and other.enqueues.startswith(way)]
    return min(peers, key=lambda name: median(_cpu(each, ENQUEUEING) for each in runs[name]), default="")


def _cpu(run: Run, parts: Sequence[str]) -> float:
    return float(sum(getattr(run, part) for part in parts))


def _cpu_ratio(own: Sequence[Run], other: Sequence[Run], parts: Sequence[str]) -> float:
    """The share of the other's CPU time: the median over the rounds, each by itself."""
    return median(_cpu(mine, parts) / _cpu(theirs, parts) for mine, theirs in zip(own, other, strict=True))


def _row(name: str, own: Sequence[Run], fastest: Sequence[Run] | None) -> tuple[str, ...]:
    rates = sorted(1e6 / each.work for each in own)
    return (
        name,
        f"{_rate(own, 'work'):,.0f}",
        f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
        times(_ratio(own, fastest, "work")) if fastest else "",
        f"{_rate(own, 'enqueue'):,.0f}",
        f"{_rate(own, 'both'):,.0f}",
        *(us(middle(own, what)) for what in ("worker_cpu", "server_cpu", *ENQUEUEING)),
    )


def _settings(place: Place, contenders: Sequence[Contender]) -> Table:
    rows: list[tuple[str, ...]] = [
        (each.name, each.packages[0] if each.packages else "", each.why, each.enqueues, each.acked)
        for each in contenders
    ]
    return Table(
        "worker-settings",
        "The settings of the workers",
        "all with hiredis; payloads as JSON or pickle, whichever each library uses by default",
        ("worker", "version", "setting", "enqueues", "acknowledged"),
        rows,
        data={each.name: each.why for each in contenders},
    )
