"""The harness: contenders take turns in several rounds, so that other load on the machine affects all alike.

Whatever is measured goes through `take_turns`, and is compared by the median of the rounds' own ratios.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple, TypeVar

One = TypeVar("One")
CALLS: Final = ("fcall", "fcall_ro", "evalsha", "evalsha_ro")
"""The commands that are calls of shardq."""

Measured = Sequence[Any]
"""The rounds of one contender: `Run`, another named tuple, or figures by name as a process tells them."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work. Only `run` is timed; its result is passed to `finish`.

    `commands` are the commands whose server time counts; that of a call includes the commands that it runs.
    """

    name: str
    messages: int
    run: Callable[[], Any]
    commands: Sequence[str] = CALLS
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
    named = {contender.name: contender for contender in contenders}
    return take_turns(list(named), rounds, seed, lambda name: _run(server, named[name]))


def take_turns(
    names: Sequence[str], rounds: int, seed: int, measure: Callable[[str], One], warm: int = 1
) -> dict[str, list[One]]:
    """Measure each *rounds* times in changing order, after *warm* rounds that do not count."""
    dice = random.Random(seed)
    runs: dict[str, list[One]] = {name: [] for name in names}
    for number in range(warm + rounds):
        for name in dice.sample(names, len(names)):
            run = measure(name)
            if number >= warm:
                runs[name].append(run)
    return runs


def _run(server: Any, contender: Contender) -> Run:
    contender.prepare()
    commands, busy = server_us(server, contender.commands), server_cpu(server)
    cpu, started = time.process_time(), time.perf_counter()
    result = contender.run()
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    commands, busy = server_us(server, contender.commands) - commands, server_cpu(server) - busy
    contender.finish(result)
    share = 1e6 / contender.messages
    return Run(wall * share, cpu * share, busy * share, commands / contender.messages)


def server_us(server: Any, commands: Sequence[str]) -> float:
    """The µs that the server has spent in these commands."""
    stats = server.info("commandstats")
    return float(sum(stats[name]["usec"] for command in commands if (name := f"cmdstat_{command}") in stats))


def server_cpu(server: Any) -> float:
    """The seconds of CPU that the server has used."""
    info = server.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def ratio(runs: Measured, reference: Measured, field: str) -> float:
    """How many times as long *runs* took as *reference*: the median of the ratios of the rounds."""
    return float(median(ratios(runs, reference, field)))


def ratios(runs: Measured, reference: Measured, field: str) -> list[float]:
    """The ratios of the rounds, in order."""
    pairs = zip(runs, reference, strict=True)
    return [_figure(run, field) / max(_figure(other, field), 1e-9) for run, other in pairs]


def middle(runs: Measured, field: str) -> float:
    """The median of *field*."""
    return float(median(_figure(run, field) for run in runs))


def half(found: Sequence[float]) -> tuple[float, float]:
    """Between which values the middle half of the rounds lies."""
    ordered = sorted(found)
    quarter = len(ordered) // 4
    return ordered[quarter], ordered[-1 - quarter]


def numbers(runs: Mapping[str, Measured]) -> dict[str, Any]:
    """Those of every round, for JSON."""
    return {name: [run if isinstance(run, dict) else run._asdict() for run in own] for name, own in runs.items()}


def _figure(run: Any, field: str) -> float:
    return float(run[field] if isinstance(run, dict) else getattr(run, field))
