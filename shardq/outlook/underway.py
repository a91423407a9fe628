"""Operators' actions on a queue that are under way, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shardq.model.action import ActionKind, ActionStatus
from shardq.model.wording import number, plural, rate, span
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Bold, Parts

WORDS_OF_ACTIONS: Final[Mapping[ActionKind, str]] = {
    "redrive": "redrive",
    "delete_dead": "delete",
    "cancel": "cancel",
    "retry_now": "retry",
}
"""The name of an action."""
_RUNNING: Final = ("running", "stopping")


def runs(action: ActionStatus) -> bool:
    """Whether somebody works on it."""
    return action.state in _RUNNING


def heading(actions: Sequence[ActionStatus]) -> Parts:
    """Return what runs, or that nothing does."""
    running = [each for each in actions if runs(each)]
    if not running:
        left = sum(each.state == "abandoned" for each in actions)
        return [
            f"{plural(left, 'action was', 'actions were')} left behind by a process." if left else "No action runs."
        ]
    first = running[0]
    parts: Parts = [name_of(first.by), " has a ", Bold(WORDS_OF_ACTIONS[first.kind]), f" under way: {progress(first)}."]
    if len(running) > 1:
        parts.append(f" {plural(len(running) - 1, 'other runs', 'others run')}.")
    return parts


def progress(action: ActionStatus) -> str:
    """Return how far an action is: what is done, what is left, how fast, and how long that takes."""
    pace = f", {rate(action.rate)}" if action.rate else ""
    until = f", {span(action.left / action.rate)} more" if action.left and action.rate else ""
    left_over = "" if action.left is None else f", {number(action.left)} left"
    return f"{number(action.done)} done{left_over}{pace}{until}"
