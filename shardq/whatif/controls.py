"""People's settings of a queue over its history, given to a replay at the same times: but for the changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardq.client import Queue
from shardq.model import Limits
from shardq.model.settings import told_setting
from shardq.whatif.alternative import REPLAYED, Alternative
from shardq.whatif.history import History, HistoryChange, Row

MIN_SECONDS: Final = 0.001
"""Seconds: a setting that ends sooner has ended."""


class ReplayControls:
    """Sets in *queue* what an alternative says, and what a history says of all else."""

    def __init__(self, queue: Queue, alternative: Alternative) -> None:
        self._queue, self._alternative = queue, alternative
        self._given: dict[tuple[str, str | None, str], Any] = {}  # what holds, by scope, key, and what it is

    def begin(self) -> None:
        """Set what the alternative says."""
        queue, alternative = self._queue, self._alternative
        for name, plan in alternative.plans.items():
            queue.set_plan(name, **plan.settings())
        if alternative.weights:
            queue.set_weights(dict(alternative.weights.items()))
        if alternative.limits:
            queue.set_limits(dict(alternative.limits.items()))

    def apply(self, change: HistoryChange) -> None:
        """Set what *change* says, unless the alternative says it otherwise, or it holds already."""
        if change.scope == "queue":
            self._set_queue(change)
        elif change.scope == "plan" and change.key is not None:
            self._set_plan(change)
        elif change.key is not None:
            self._set_key(change)

    def _is_new(self, change: HistoryChange, what: str, value: Any) -> bool:
        """Note that *what* has this value from now on. Return whether it had another one."""
        place = (change.scope, change.key, what)
        if self._given.get(place, _USUAL_CONTROLS[what]) == value:
            return False
        self._given[place] = value
        return True

    def _set_queue(self, change: HistoryChange) -> None:
        values = settings_of(change.state)
        changed = {
            name: value
            for name, value in values.items()
            if name not in self._alternative.settings and getattr(self._queue.state.config, name) != value
        }
        if changed:
            self._queue.configure(**changed)
        self._set_pause(change, None)

    def _set_plan(self, change: HistoryChange) -> None:
        name, state = change.key, change.state
        if name is None or name in self._alternative.plans:
            return
        if state["kind"] == "plan_deleted":
            if self._is_new(change, "plan", None):
                self._queue.delete_plan(name)
            return
        numbers = {"max_in_flight": state["cap"], "rate": state["rate"], "burst": _whole(state["burst"])}
        values = {each: value for each, value in numbers.items() if value is not None}
        if state["weight"] is not None:
            values["weight"] = _whole(state["weight"])
        if self._is_new(change, "plan", values):
            self._queue.set_plan(name, **values)

    def _set_key(self, change: HistoryChange) -> None:
        key, state, alternative = change.key, change.state, self._alternative
        assert key is not None  # noqa: S101 (for type checkers)
        if key not in alternative.weights:
            seconds = _left(change, "weight_until")
            weight = 1 if state["weight"] is None or seconds == 0 else _whole(state["weight"])
            if self._is_new(change, "weight", (weight, state["weight_until"] if weight != 1 else None)):
                self._queue.set_weights({key: weight}, seconds=seconds or None)
        if key not in alternative.limits:
            seconds = _left(change, "limits_until")
            limits = Limits() if seconds == 0 else _limits(state)
            if self._is_new(change, "limits", (limits, state["limits_until"] if limits != Limits() else None)):
                self._queue.set_limits({key: limits}, seconds=seconds or None)
        self._set_pause(change, key)

    def _set_pause(self, change: HistoryChange, key: str | None) -> None:
        seconds = _left(change, "paused_until")
        is_paused = bool(change.state["paused"]) and seconds != 0
        if not self._is_new(change, "pause", (is_paused, change.state["paused_until"] if is_paused else None)):
            return
        if is_paused:
            self._queue.pause(key, seconds=seconds)
        else:
            self._queue.resume(key)


_USUAL_CONTROLS: Final[Mapping[str, Any]] = {
    "plan": None, "weight": (1, None), "limits": (Limits(), None), "pause": (False, None),
}  # fmt: skip


def first_settings(history: History, alternative: Alternative) -> dict[str, Any]:
    """Return the settings with which the queue is made: as first known, and as the alternative says."""
    found: dict[str, Any] = {}
    for change in history.changes:
        if change.scope == "queue":
            found = {**settings_of(change.state), **found}
    return {**found, **alternative.settings}


def settings_of(state: Row) -> dict[str, Any]:
    """Return the settings of a queue that a row tells, and on which a replay depends."""
    told = dict(state["values"] or ())
    return {name: told_setting(name, text) for name, text in told.items() if name in REPLAYED and text != ""}


def _left(change: HistoryChange, name: str) -> float | None:
    """Return in how many seconds what was changed ends: 0 if it has ended, None if it has no end."""
    until = change.state[name]
    if until is None:
        return None
    left: float = until - change.at
    return left if left >= MIN_SECONDS else 0.0


def _limits(state: Row) -> Limits | str:
    if state["plan"] is not None:
        return str(state["plan"])
    return Limits(state["cap"], state["rate"], _whole(state["burst"]))


def _whole(number: float | None) -> Any:
    return None if number is None else round(number)
