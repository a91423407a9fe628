"""The screen of actions: what operators have under way on a queue, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shardq.cli.grid import Column, grid
from shardq.cli.text import shown_key
from shardq.cli.width import wrapped
from shardq.model.action import ActionStatus
from shardq.model.where import Where
from shardq.model.wording import number, plural, rate, short_moment, short_number, span

TABLE: Final = (
    Column("ID", begins=True),
    Column("WHAT", begins=True),
    Column("OF", 8),
    Column("STATE", begins=True),
    Column("DONE"),
    Column("LEFT"),
    Column("BY", 6),
    Column("SINCE", begins=True),
)
WHAT: Final = {
    "redrive": "redrive",
    "delete_dead": "delete",
    "cancel": "cancel",
    "retry_now": "retry",
}


def lines(actions: Sequence[ActionStatus], now: float, *, queue: str) -> list[str]:
    """Return how far what runs is, and a line on each."""
    told = wrapped(heading(actions, now))
    told += grid(TABLE, (_row(each, now) for each in actions))
    for each in actions:
        if each.problem:
            told += wrapped(f"{each.id} failed: {each.problem}", indent="  ")
    left = next((each for each in actions if each.state == "abandoned"), None)
    if left is not None:
        told.append(f"shardq actions {queue} take-over {left.id}    # its process was silent for 30 s")
    return told


def heading(actions: Sequence[ActionStatus], now: float) -> str:
    """Return what runs, or what ran last."""
    runs = [each for each in actions if each.state in ("running", "stopping")]
    if not runs:
        left = sum(each.state == "abandoned" for each in actions)
        return f"{plural(left, 'action was', 'actions were')} left behind by a process." if left else "No action runs."
    first = runs[0]
    pace = f", {rate(first.rate)}" if first.rate else ""
    until = f", {span(first.left / first.rate)} more" if first.left and first.rate else ""
    left_over = "" if first.left is None else f", {number(first.left)} left"
    more = f" {plural(len(runs) - 1, 'other runs', 'others run')}." if len(runs) > 1 else ""
    return f"{first.by} has a {WHAT[first.kind]} under way: {number(first.done)} done{left_over}{pace}{until}.{more}"


def _row(action: ActionStatus, now: float) -> list[str]:
    return [
        action.id,
        WHAT[action.kind],
        filter_of(action.where),
        action.state,
        short_number(action.done),
        "-" if action.left is None else short_number(action.left),
        action.by,
        short_moment(action.started, now),
    ]


def filter_of(where: Where) -> str:
    """A filter as one would type it, without what it does not say."""
    said = []
    for name, value in msgspec.structs.asdict(where).items():
        if value is None:
            continue
        if name in ("older_than", "newer_than"):
            said.append(f"{name.replace('_', ' ')} {span(value)}")
        else:
            said.append(shown_key(value) if name == "tenant" else str(value))
    return ", ".join(said) or "all"
