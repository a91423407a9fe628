"""How far an action on many messages is, in words, and as numbers for a bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shardq.model.action import ActionKind, ActionStatus
from shardq.model.wording import number, plural, span
from shardq.outlook.filters import filter_in_words
from shardq.outlook.names import name_of
from shardq.outlook.underway import WORDS_OF_ACTIONS, runs

MAX_NOTE: Final = 300
"""Letters of a note."""


class What(NamedTuple):
    """A kind of action in words: somebody has a `noun` under way, and messages are `done` by it."""

    noun: str
    done: str


VIA_ONE: Final = "dashboard, of one message"
"""How one is marked that is about one message. Its filter selects others, too, so nobody may continue it."""
_DONE: Final[Mapping[ActionKind, str]] = {
    "redrive": "redriven", "delete_dead": "deleted", "cancel": "cancelled", "retry_now": "tried now",
}  # fmt: skip
ACTION_WORDS: Final[Mapping[ActionKind, What]] = {
    kind: What(WORDS_OF_ACTIONS[kind], done) for kind, done in _DONE.items()
}
_STATES: Final = {
    "stopping": "it stops with its next piece", "stopped": "stopped", "done": "done", "failed": "failed",
    "abandoned": "its process was silent for 30 s",
}  # fmt: skip


def shown(queue: str, one: ActionStatus) -> dict[str, Any]:
    """Return an action as a screen shows it. `total` is None while nobody knows how many there are."""
    total = _total(one)
    return {
        "id": one.id,
        "queue": queue,
        "kind": one.kind,
        "what": ACTION_WORDS[one.kind].noun,
        "of": filter_in_words(one.where),
        "state": one.state,
        "by": name_of(one.by) if one.by else "",
        "note": name_of(one.note, MAX_NOTE) if one.note else "",
        "started": one.started,
        "heard": one.heard,
        "done": one.done,
        "total": total,
        "rate": one.rate,
        "line": _line(one, total),
        "live": runs(one),
        "stops": one.state in ("running", "abandoned"),
        "goes_on": can_go_on(one),
    }


def can_go_on(one: ActionStatus) -> bool:
    """Whether somebody may continue an action by hand."""
    return one.state in ("abandoned", "failed", "stopped") and one.via != VIA_ONE


def _total(one: ActionStatus) -> int | None:
    """How many it is about, those passed over included."""
    if one.state == "done":
        return one.done
    if one.limit is not None and one.left is None:
        return one.limit
    return None if one.left is None else one.done + one.left


def _line(one: ActionStatus, total: int | None) -> str:
    of = "" if total is None or one.state == "done" else f" of {number(total)}"
    said = [f"{number(one.done)}{of} {ACTION_WORDS[one.kind].done}"]
    if one.rate and one.state == "running":
        said.append(f"{one.rate:,g}/s")
        if total is not None and total > one.done:
            said.append(f"{span((total - one.done) / one.rate)} left")
    if one.state in _STATES:
        said.append(_STATES[one.state])
    if one.passed:
        said.append(f"{plural(one.passed, 'message')} had changed")
    if one.problem:
        said.append(name_of(one.problem) if len(one.problem) < 40 else one.problem[:300])
    return "; ".join([", ".join(said[:3]), *said[3:]])
