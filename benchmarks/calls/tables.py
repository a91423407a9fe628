"""The tables of calls: the CPU of client and server, beside that of the references, and the rates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.calls.agents import Agent, Field, Row, Runs, field
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import half, middle, numbers, ratio, ratios
from benchmarks.settings import Place, Settings
from benchmarks.workers.contenders import OTHERS
from benchmarks.workers.environments import Missing, programs

SHORTER, MORE = 20, 10
"""A turn has a 20th of the messages of the settings, and there are ten times as many rounds: where other work comes and
goes on the machine, what takes turns quickly meets the same of it."""
PLAIN, HUEY, OURS = "plain", "huey", "shardq"
LPUSH, XADD, PRIOR = "redis-py, LPUSH", "bare stream, XADD", "prior art, write"
RPOP, XREAD, PRIOR_READ = "redis-py, RPOP (no ack)", "bare stream, XREADGROUP, XACK", "prior art, read and ack"
ENQUEUE, DEQUEUE = "huey, enqueue", "huey, dequeue (no ack)"
WRITE, READ, NEXT = "shardq write", "shardq read, ack", "shardq read(ack=previous)"
MANY, MANY_READ = "shardq write_many", "shardq read_many, ack_many"
CROWDS: Final = {"64 threads": 1.2, "64 tasks": 2.2, "1,000 tasks": 3.0}
"""At least so many times the rate of one caller of LPUSH."""
MOST_OF_PRIOR: Final = 1.3
MOST_OF_HUEY: Final = 1.15
LEAST_OF_LPUSH: Final = 0.5

Which = Sequence[tuple[str, str, str]]
"""The rows: their names, agents and actions."""
WRITES: Final[Which] = (
    (PRIOR, PLAIN, "prior write"), (ENQUEUE, HUEY, "enqueue"), (LPUSH, PLAIN, "lpush"), (XADD, PLAIN, "xadd"),
    (WRITE, OURS, "write"), (f"{XADD}, in batches", PLAIN, "xadd, batches"), (MANY, OURS, "write_many"),
)  # fmt: skip
READS: Final[Which] = (
    (PRIOR_READ, PLAIN, "prior consume"), (DEQUEUE, HUEY, "dequeue"), (RPOP, PLAIN, "rpop"),
    (XREAD, PLAIN, "xreadgroup"), (READ, OURS, "read, ack"), (NEXT, OURS, "read(ack=)"),
    (f"{XREAD}, in batches", PLAIN, "xreadgroup, batches"), (MANY_READ, OURS, "read_many, ack_many"),
)  # fmt: skip
CALLERS: Final[Which] = (
    (LPUSH, PLAIN, "lpush"), ("huey, enqueue, 64 threads", HUEY, "enqueue, 64 threads"),
    *((f"shardq {verb}, {crowd}", OURS, f"{verb}, {crowd}") for verb in ("write", "ack") for crowd in CROWDS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A state of the queue. So many messages wait all the time; `payload` is in bytes.

    With few *tenants* most messages are held back behind others of their tenants, with many hardly any.
    """

    name: str
    title: str
    tenants: int
    waiting: int = 0
    payload: int = 0

    def at(self, place: Place) -> Place:
        """The place with its settings."""
        chosen = place.settings
        payload = self.payload or chosen.payload
        return Place(place.server, replace(chosen, tenants=self.tenants, payload=payload, rounds=_rounds(chosen)))


CASES: Final = (
    Case("empty", "an empty queue", 10_000),
    Case("backlog", "100 tenants have a backlog of 4,000 messages", 100, waiting=4000),
    Case("large", "messages of 8 kB, nearly all held back: 10 tenants have 100 each waiting", 10, 1000, payload=8192),
)


def run(place: Place) -> Iterator[Table]:
    """Those that `--only` names."""
    words = place.settings.only.split(",")
    for case in CASES:
        if any(word in case.name for word in words):
            yield from _single(case, case.at(place))
    if any(word in "callers" for word in words):
        yield _callers(replace(CASES[0], name="callers").at(place))


def _single(case: Case, place: Place) -> Iterator[Table]:
    """One caller: writes, then reads."""
    with field(place, _messages(place.settings), case.waiting) as ground:
        agents = _agents(ground)
        written = _take(ground, agents, WRITES, place)
        read = _take(ground, agents, READS, place)
    said = _described(place, agents)
    beside = {"LPUSH": LPUSH, "huey": ENQUEUE, "XADD": XADD, "prior art": PRIOR}
    yield _table(f"calls-{case.name}-write", f"Write, {case.title}", said, written, beside, _written(case, written))
    beside = {"RPOP": RPOP, "huey": DEQUEUE, "XREADGROUP": XREAD, "prior art": PRIOR_READ}
    yield _table(f"calls-{case.name}-read", f"Read and ack, {case.title}", said, read, beside, _read(written, read))


def _callers(place: Place) -> Table:
    with field(place, 4 * _messages(place.settings)) as ground:
        agents = _agents(ground)
        runs = _take(ground, agents, CALLERS, place)
    targets = [
        Target(f"rate of a write, {crowd}, of LPUSH's", 1 / ratio(runs[f"shardq write, {crowd}"], runs[LPUSH], "wall"),
               least, note=_half(ratios(runs[LPUSH], runs[f"shardq write, {crowd}"], "wall")))
        for crowd, least in CROWDS.items()
    ]  # fmt: skip
    title = "Many callers on one client, each one message at a time, beside one caller of LPUSH"
    return _table("calls-callers", title, _described(place, agents), runs, {"LPUSH": LPUSH}, targets)


def _agents(ground: Field) -> dict[str, Agent]:
    """By name. huey runs in its own environment, and is missing where that cannot be made."""
    found = {PLAIN: ground.agent("plain"), OURS: ground.agent("shardq_calls")}
    huey = next(each for each in OTHERS if each.name == HUEY)
    with contextlib.suppress(Missing):
        found[HUEY] = ground.agent("huey_calls", python=programs(huey) / "python")
    return found


def _take(ground: Field, agents: Mapping[str, Agent], which: Which, place: Place) -> Runs:
    rows = [Row(name, agents[agent], action) for name, agent, action in which if agent in agents]
    return ground.take(rows, place.settings.rounds)


def _messages(chosen: Settings) -> int:
    """Those of a turn: whole batches."""
    return max(1, -(-chosen.messages // SHORTER // chosen.batch)) * chosen.batch


def _rounds(chosen: Settings) -> int:
    return MORE * chosen.rounds


def _described(place: Place, agents: Mapping[str, Agent]) -> str:
    left_out = "" if HUEY in agents else "; huey is left out: its packages could not be fetched"
    return f"{place.described()}, batches of {place.settings.batch}{left_out}"


def _table(name: str, title: str, said: str, runs: Runs, references: Mapping[str, str], targets: list[Target]) -> Table:
    present = {heading: runs[row] for heading, row in references.items() if row in runs}
    first, *_ = present
    columns = (
        "a message", "client CPU", "server CPU", "both", *(f"both / {heading}" for heading in present),
        f"half of the rounds / {first}", "messages/s", f"rate / {first}", "p50 of a call", "p99",
    )  # fmt: skip
    rows = []
    for row, own in runs.items():
        cells = [row, *(us(middle(own, what)) for what in ("client", "server", "cpu"))]
        cells += [times(ratio(own, other, "cpu")) for other in present.values()]
        cells += [_half(ratios(own, present[first], "cpu")), f"{1e6 / middle(own, 'wall'):,.0f}"]
        cells += [times(1 / ratio(own, present[first], "wall")), *(us(middle(own, what)) for what in ("p50", "p99"))]
        rows.append(tuple(cells))
    return Table(name, title, said, columns, rows, targets, numbers(runs))


def _half(found: Sequence[float]) -> str:
    return "{} to {}".format(*map(times, half(found)))


def _written(case: Case, runs: Runs) -> list[Target]:
    found = [Target("rate of a write, of LPUSH's", 1 / ratio(runs[WRITE], runs[LPUSH], "wall"), LEAST_OF_LPUSH)]
    if ENQUEUE in runs and not case.waiting:
        found.append(Target("CPU of a write, of huey's", ratio(runs[WRITE], runs[ENQUEUE], "cpu"), MOST_OF_HUEY, True))
    return found


def _read(written: Runs, read: Runs) -> list[Target]:
    """A message's whole way: written, read and acked, each by a call."""
    own = [a.cpu + b.cpu for a, b in zip(written[WRITE], read[READ], strict=True)]
    prior = [a.cpu + b.cpu for a, b in zip(written[PRIOR], read[PRIOR_READ], strict=True)]
    pairs = [{"cpu": mine} for mine in own], [{"cpu": theirs} for theirs in prior]
    return [Target("CPU of write, read and ack, of the prior art's", ratio(*pairs, "cpu"), MOST_OF_PRIOR, True)]
