"""single: one call after the other, a write, or a read and an ack, beside prior art, huey, redis-py and bare streams.

`--base` adds the same of another checkout. Each contender is a process of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

from benchmarks.calls.agents import Agent, Field, Row, Runs, field
from benchmarks.calls.columns import compared, context, data, faster, short
from benchmarks.calls.trees import Tree, tree_of
from benchmarks.report import Table, Target
from benchmarks.settings import Place
from benchmarks.workers.contenders import OTHERS
from benchmarks.workers.environments import Missing, programs

PRIOR, HUEY, LPUSH, BARE = "prior art", "huey", "redis-py", "bare stream"
WRITE, READ, NEXT = "shardq write", "shardq read, ack", "shardq read(ack=previous)"
WRITES = {PRIOR: f"{PRIOR}, write", HUEY: f"{HUEY}, enqueue", LPUSH: f"{LPUSH}, LPUSH", BARE: f"{BARE}, XADD"}
READS = {
    PRIOR: f"{PRIOR}, read and ack", HUEY: f"{HUEY}, dequeue (no ack)", LPUSH: f"{LPUSH}, RPOP (no ack)",
    BARE: f"{BARE}, XREADGROUP, XACK",
}  # fmt: skip
BASE = "base"
CONSUME = "consume, ack with the next read"


def run(place: Place) -> list[Table]:
    base = tree_of(place.settings.base)
    messages, rounds = short(place)
    with field(place, messages) as ground:
        agents = _agents(ground, base)
        written = ground.take(_writers(agents), rounds)
        read = ground.take(_readers(agents), rounds)
    said = context(place, rounds, base)
    left_out = "" if HUEY in agents else "; huey is left out: its packages could not be fetched"
    return [_table("single-write", "Write", WRITES, said + left_out, written),
            _table("single-read", "Read and ack", READS, said + left_out, read)]  # fmt: skip


def _agents(ground: Field, base: Tree | None) -> dict[str, Agent]:
    """By name. huey runs in its own environment, and is missing where that cannot be made."""
    found = {"plain": ground.agent("plain"), "shardq": ground.agent("shardq_calls")}
    if base:
        found[BASE] = ground.agent("shardq_calls", tree=base.folder)
    huey = next(each for each in OTHERS if each.name == HUEY)
    with contextlib.suppress(Missing):
        found[HUEY] = ground.agent("huey_calls", tree=None, python=programs(huey) / "python")
    return found


def _rows(agents: dict[str, Agent], which: list[tuple[str, str, str]]) -> list[Row]:
    return [Row(name, agents[agent], action) for name, agent, action in which if agent in agents]


def _writers(agents: dict[str, Agent]) -> list[Row]:
    return _rows(agents, [
        (WRITES[PRIOR], "plain", "prior write"),
        (WRITES[HUEY], HUEY, "enqueue"),
        (WRITES[LPUSH], "plain", "lpush"),
        (WRITES[BARE], "plain", "xadd"),
        (f"{BASE}: {WRITE}", BASE, "write"),
        (WRITE, "shardq", "write"),
    ])  # fmt: skip


def _readers(agents: dict[str, Agent]) -> list[Row]:
    return _rows(agents, [
        (READS[PRIOR], "plain", "prior consume"),
        (READS[HUEY], HUEY, "dequeue"),
        (READS[LPUSH], "plain", "rpop"),
        (READS[BARE], "plain", "xreadgroup"),
        (f"{BASE}: {READ}", BASE, "consume"),
        (READ, "shardq", "consume"),
        (NEXT, "shardq", CONSUME),
    ])  # fmt: skip


def _table(name: str, what: str, references: dict[str, str], said: str, runs: Runs) -> Table:
    base = next((row for row in runs if row.startswith(BASE)), "")
    others: dict[str, Any] = {**references, BASE: base} if base else references
    columns, rows = compared(runs, others)
    targets = _written(runs) if name == "single-write" else _read(runs)
    return Table(name, f"{what}, one at a time", said, columns, rows, targets, data(runs))


def _written(runs: Runs) -> list[Target]:
    bounds = {WRITES[PRIOR]: 1.2, WRITES[HUEY]: 1.0}
    return [
        faster(f"rate of a write against {name}", runs[WRITE], runs[name], bound)
        for name, bound in bounds.items()
        if name in runs
    ]


def _read(runs: Runs) -> list[Target]:
    best = NEXT if NEXT in runs else READ
    return [faster(f"rate of {best} against {READS[PRIOR]}", runs[best], runs[READS[PRIOR]], 1.1)]
