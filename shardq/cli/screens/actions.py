"""The screen of actions: operators' actions on a queue that are under way, and how far each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shardq.cli.grid import Column, grid
from shardq.cli.text import shown_key
from shardq.cli.width import wrapped
from shardq.model.action import ActionStatus
from shardq.model.where import Where
from shardq.model.wording import short_moment, short_number, span
from shardq.outlook.sentence import joined
from shardq.outlook.underway import WORDS_OF_ACTIONS, heading

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


def lines(actions: Sequence[ActionStatus], now: float, *, queue: str) -> list[str]:
    """Return how far what runs is, and a line on each."""
    told = wrapped(joined(heading(actions))[0])
    told += grid(TABLE, (_row(each, now) for each in actions))
    for each in actions:
        if each.problem:
            told += wrapped(f"{each.id} failed: {each.problem}", indent="  ")
    left = next((each for each in actions if each.state == "abandoned"), None)
    if left is not None:
        told.append(f"shardq actions {queue} take-over {left.id}    # its process was silent for 30 s")
    return told


def _row(action: ActionStatus, now: float) -> list[str]:
    return [
        action.id,
        WORDS_OF_ACTIONS[action.kind],
        filter_of(action.where),
        action.state,
        short_number(action.done),
        "-" if action.left is None else short_number(action.left),
        action.by,
        short_moment(action.started, now),
    ]


def filter_of(where: Where) -> str:
    """A filter in a column: its values, without what it does not say."""
    said = []
    for name, value in msgspec.structs.asdict(where).items():
        if value is None:
            continue
        if name in ("older_than", "newer_than"):
            said.append(f"{name.replace('_', ' ')} {span(value)}")
        else:
            said.append(shown_key(value) if name == "tenant" else str(value))
    return ", ".join(said) or "all"
