"""concurrent: threads and tasks that write, publish and ack single messages on one client, beside LPUSH one at a time.

`--base` adds the same of another checkout. Each contender is a process of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.calls.agents import Row, Runs, field
from benchmarks.calls.columns import compared, context, data, faster, less
from benchmarks.calls.trees import tree_of
from benchmarks.report import Table, Target, times
from benchmarks.rounds import ratio
from benchmarks.settings import Place


class Crowd(NamedTuple):
    """Who calls, and what their rate is to be: of the base's and of LPUSH's."""

    callers: str
    base: float
    lpush: float

    @property
    def reference(self) -> str:
        """The row of LPUSH, which takes turns with this crowd."""
        return f"redis-py, LPUSH, one at a time (beside {self.callers})"

    def row(self, verb: str, *, base: bool = False) -> str:
        """Its row."""
        return f"{'base: ' if base else ''}shardq {verb}, {self.callers}"


CROWDS = (Crowd("64 threads", 3, 1.2), Crowd("64 tasks", 5, 3), Crowd("1,000 tasks", 6, 3.5))
SHORTER, MORE = 5, 3  # than a turn of the settings, and as many more rounds; a crowd needs some calls for each
VERBS = ("write", "publish to 3 queues", "ack")
SLOWEST = 0.25
"""What the p99 of a write is to be at most, of the base's."""


def run(place: Place) -> list[Table]:
    base = tree_of(place.settings.base)
    messages, rounds = max(1, place.settings.messages // SHORTER), MORE * place.settings.rounds
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    runs: Runs = {}
    with field(place, messages) as ground:
        plain = ground.agent("plain")
        trees = {False: ground.agent("shardq_calls")}
        if base:
            trees[True] = ground.agent("shardq_calls", tree=base.folder)
        for crowd in CROWDS:
            asked = [
                Row(crowd.row(verb, base=old), agent, f"{verb}, {crowd.callers}")
                for verb in VERBS
                for old, agent in trees.items()
            ]
            found = ground.take([Row(crowd.reference, plain, "lpush"), *asked], rounds)
            columns, made = _rows(crowd, found)
            rows, targets, runs = rows + made, targets + _targets(crowd, found), runs | found
    title = "Many callers on one client, each one message at a time"
    return [Table("concurrent", title, context(place, rounds, base), columns, rows, targets, data(runs))]


def _rows(crowd: Crowd, runs: Runs) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    columns, rows = compared(runs, {"LPUSH": crowd.reference})
    if not any(name.startswith("base") for name in runs):
        return columns, rows
    return (*columns, "rate / base", "p99 / base"), [(*row, *_beside(runs, row[0])) for row in rows]


def _beside(runs: Runs, name: str) -> tuple[str, str]:
    """A row's rate and p99, of those of the same row of the base."""
    own, other = runs[name], runs.get(f"base: {name}")
    return (times(1 / ratio(own, other, "wall")), times(ratio(own, other, "p99"))) if other else ("", "")


def _targets(crowd: Crowd, runs: Runs) -> list[Target]:
    own, before = runs[crowd.row("write")], runs.get(crowd.row("write", base=True))
    said = f"{crowd.callers} that write singly"
    found = [faster(f"rate of {said} against LPUSH one at a time", own, runs[crowd.reference], crowd.lpush)]
    if before:
        found.append(faster(f"rate of {said} against the base", own, before, crowd.base))
        found.append(less(f"p99 of {said} against the base", own, before, "p99", SLOWEST))
    return found
