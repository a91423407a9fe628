"""All actions, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq.dashboard.actions import letters, many, one, pauses, purge, shares
from shardq.dashboard.actions.dialog import DialogAction
from shardq.dashboard.people import Person

TABLE: Final[Mapping[str, DialogAction]] = {
    each.name: each
    for each in (
        pauses.PAUSE, pauses.RESUME, shares.LIMIT, shares.PLAN, shares.WEIGHT, purge.PURGE,
        many.REDRIVE, many.RETRY_NOW, many.CANCEL, many.DELETE, one.RUN_NOW, one.STOP, one.GO_ON_ACTION,
    )
}  # fmt: skip
"""The actions by the names in their addresses."""

ACTIONS_OF_ONE: Final[Mapping[str, DialogAction]] = {
    each.name: each for each in (one.CANCEL_ONE, letters.REDRIVE_ONE, letters.DELETE_ONE, letters.RETRY_ONE)
}
"""The same names, where one message is named by its `message_id`."""


def action_of(name: str, said: Mapping[str, str]) -> DialogAction | None:
    """Return the action of this name for what is *said*; None if there is none."""
    return ACTIONS_OF_ONE.get(name) if name in ACTIONS_OF_ONE and "message_id" in said else TABLE.get(name)


def allowed(person: Person) -> list[str]:
    """Return the names of the actions that a person may do; for one message alone as "cancel one"."""
    of_one = [f"{each.name} one" for each in ACTIONS_OF_ONE.values() if person.role >= each.role]
    return [each.name for each in TABLE.values() if person.role >= each.role] + of_one
