"""Transition tables: for each state and event what is done, and which state comes next.

The next state of a cell may depend on how much is in flight then, so a cell names a state for each condition. A cell
that makes no sense does nothing on purpose, and keeps the state (pl-rants, "Asynchronous Messaging Over gRPC", 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

NO_ACTION: Final = "nothing"
"""The action of a cell that is impossible, or changes nothing."""

ALWAYS_CONDITION: Final = "always"
"""The condition of a cell with one next state."""


class Cell(NamedTuple):
    """The action of an event in a state, and the next state for each condition."""

    action: str
    then: Mapping[str, str]


Table: TypeAlias = Mapping[str, Mapping[str, Cell]]


def stays(state: str, action: str = NO_ACTION) -> Cell:
    """Return the cell of an event that keeps the state."""
    return Cell(action, {ALWAYS_CONDITION: state})
