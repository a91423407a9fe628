"""before: server time of each call, single and in batches, windows 0 and 1, beside another checkout (`--base`).

No call may take longer than the base's; `--most` gives all calls another bound.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.calls.agents import Row, Runs, field
from benchmarks.calls.columns import context, data, less, short
from benchmarks.calls.trees import tree_of
from benchmarks.report import Table, times, us
from benchmarks.rounds import middle, ratio
from benchmarks.settings import Place

WINDOWS = (0, 1)


class Call(NamedTuple):
    """A call: the agent's action, and what the table says."""

    action: str
    said: str


SINGLE = (Call("write", "write"), Call("read", "read"), Call("ack", "ack"))
NOISE = 1.05
"""What is not slower may seem to be by this much."""


def batches(batch: int) -> tuple[Call, ...]:
    """The calls that handle many messages."""
    return tuple(Call(action, f"{action}({batch})") for action in ("write_many", "read_many", "ack_many"))


def _name(call: Call, window: int, *, base: bool = False) -> str:
    return f"{'base: ' if base else ''}{call.said}, window={window}"


def run(place: Place) -> list[Table]:
    base = tree_of(place.settings.base)
    messages, rounds = short(place)
    with field(place, messages) as ground:
        agents = {(False, window): ground.agent("shardq_calls", window=window) for window in WINDOWS}
        if base:
            agents |= {(True, each): ground.agent("shardq_calls", window=each, tree=base.folder) for each in WINDOWS}
        tables = []
        for name, what, calls in (
            ("single", "one at a time", SINGLE),
            ("batches", "in batches", batches(place.settings.batch)),
        ):
            runs: Runs = {}
            for call in calls:  # those of one call beside one another, not those of all calls
                rows = [
                    Row(_name(call, window, base=old), agent, call.action) for (old, window), agent in agents.items()
                ]
                runs |= ground.take(rows, rounds)
            said = context(place, rounds, base)
            tables.append(_table(place, f"before-{name}", f"Server time, {what}", said, calls, runs))
    return tables


def _table(place: Place, name: str, title: str, said: str, calls: tuple[Call, ...], runs: Runs) -> Table:
    columns, chosen = ["per message", "server time", "server CPU", "client CPU", "clock"], place.settings
    if chosen.base:
        columns += ["server time / base", "server CPU / base", "client CPU / base", "clock / base"]
        columns += ["server time / base with window=0"]
    rows, targets = [], []
    for call in calls:
        for window in WINDOWS:
            own = runs[_name(call, window)]
            cells = [_name(call, window), *(us(middle(own, what)) for what in ("commands", "server", "client", "wall"))]
            if chosen.base:
                other, plain = runs[_name(call, window, base=True)], runs[_name(call, 0, base=True)]
                cells += [times(ratio(own, other, what)) for what in ("commands", "server", "client", "wall")]
                cells += [times(ratio(own, plain, "commands"))]
                said_so = f"server time of {cells[0]} against the base"
                targets.append(less(said_so, own, other, "commands", chosen.most or NOISE))
            rows.append(tuple(cells))
    return Table(name, title, said, tuple(columns), rows, targets, data(runs))
