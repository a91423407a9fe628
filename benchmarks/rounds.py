"""Runs contenders one after the other, in several rounds, so that other load on the machine affects all alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work. Only `run` is timed; its result is passed to `finish`.

    `commands` are the commands whose server time counts; the time of a script includes the commands that it calls.
    """

    name: str
    messages: int
    run: Callable[[], Any]
    commands: Sequence[str] = ("evalsha",)
    prepare: Callable[[], Any] = lambda: None
    finish: Callable[[Any], Any] = lambda _: None


class Run(NamedTuple):
    """One contender in one round, in µs per message: wall time, CPU of this process and of the server, its commands."""

    wall: float
    client: float
    server: float
    commands: float


def take_runs(server: Any, contenders: Sequence[Contender], rounds: int, seed: int) -> dict[str, list[Run]]:
    """Run all of them *rounds* times in changing order, after one round that does not count."""
    dice = random.Random(seed)
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        for contender in dice.sample(contenders, len(contenders)):
            run = _run(server, contender)
            if number:
                runs[contender.name].append(run)
    return runs


def _run(server: Any, contender: Contender) -> Run:
    contender.prepare()
    commands, busy = _server_us(server, contender.commands), _server_cpu(server)
    cpu, started = time.process_time(), time.perf_counter()
    result = contender.run()
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    commands, busy = _server_us(server, contender.commands) - commands, _server_cpu(server) - busy
    contender.finish(result)
    share = 1e6 / contender.messages
    return Run(wall * share, cpu * share, busy * share, commands / contender.messages)


def _server_us(server: Any, commands: Sequence[str]) -> float:
    stats = server.info("commandstats")
    return float(sum(stats[name]["usec"] for command in commands if (name := f"cmdstat_{command}") in stats))


def _server_cpu(server: Any) -> float:
    info = server.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def ratio(runs: Sequence[Run], reference: Sequence[Run], field: str) -> float:
    """How many times as long *runs* took as *reference*: the median of the ratios of the rounds."""
    pairs = zip(runs, reference, strict=True)
    return float(median(getattr(run, field) / max(getattr(other, field), 1e-9) for run, other in pairs))


def middle(runs: Sequence[Run], field: str) -> float:
    """The median of *field*."""
    return float(median(getattr(run, field) for run in runs))
