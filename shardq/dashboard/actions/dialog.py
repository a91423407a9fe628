"""The text of a dialog before an action is done, and the answer of an action when it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from shardq.dashboard.actions.fields import Field, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.marked import spelled
from shardq.dashboard.people import Person, Role
from shardq.dashboard.source import SceneSource
from shardq.model.action import ActionKind
from shardq.model.where import Where
from shardq.outlook.sentence import Parts

Tone: TypeAlias = Literal["", "warn", "bad"]


class DialogLine(NamedTuple):
    """One thing that a dialog says: a sentence or two, with times among its parts; and how bad it is."""

    parts: Parts
    tone: Tone = ""

    @property
    def text(self) -> str:
        """It as plain text."""
        return "".join(self.parts)


def line(*parts: str | Parts, tone: Tone = "") -> DialogLine:
    """Make a line of texts, times, and parts that are made already."""
    found: Parts = []
    for each in parts:
        found += [each] if isinstance(each, str) else each
    return DialogLine(found, tone)


@dataclass(frozen=True, slots=True)
class DialogText:
    """The effect of an action, in words. `verb` stands on its button, `lines` say it, the worst in the tone "bad".

    `danger` is a name that the person must type first. `state` are things that must still be so when it is done, by
    their names, and `changed` says of each in words how it is now, for one who saw otherwise; `counts` are numbers
    that may not have grown by much. An action on many messages acts on `limit` at most.
    """

    title: str
    verb: str
    lines: Sequence[DialogLine]
    choices: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    danger: str = ""
    state: Mapping[str, object] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
    is_possible: bool = True


@dataclass(frozen=True, slots=True)
class DialogDone:
    """The result of an action, in a sentence; and the id of the part that continues in the background."""

    text: str
    handle: str = ""


class Beginner(Protocol):
    """Begins actions on many messages, and continues them."""

    async def begin(
        self, queue: str, kind: ActionKind, where: Where, rate: float | None, limit: int | None, by: str, note: str
    ) -> str:
        """Begin one, and return its id."""

    async def take_over(self, queue: str, action_id: str) -> None:
        """Continue one."""

    async def retry_one(self, queue: str, message_id: str, key: str | bytes, by: str, note: str) -> bool:
        """Make one message deliverable at once, and return whether it waited for its next try."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The means of an action: where numbers come from, who asks, and who continues the parts that take long."""

    source: SceneSource
    person: Person
    handles: Beginner


@dataclass(frozen=True, slots=True)
class DialogAction:
    """One action: who may do it, its fields, its text, and how it is done.

    `do` gets the text that the person saw, and the text of now.
    """

    name: str
    role: Role
    takes: Takes
    fields: tuple[Field, ...]
    say: Callable[[Desk, Given, Wish], Awaitable[DialogText]]
    do: Callable[[Desk, Given, Wish, DialogText, DialogText], Awaitable[DialogDone]]
    is_bad: bool = False

    def shown(self, said: DialogText, wish: Wish) -> dict[str, Any]:
        """Return the dialog as JSON, but for the ticket."""
        return {
            "action": self.name,
            "title": said.title,
            "verb": said.verb,
            "bad": self.is_bad,
            "lines": [{"parts": spelled(each.parts), "tone": each.tone} for each in said.lines],
            "fields": [self._shown(each, said, wish) for each in self.fields] if said.is_possible else [],
            "danger": said.danger if said.is_possible else "",
            "possible": said.is_possible,
        }

    def _shown(self, each: Field, said: DialogText, wish: Wish) -> dict[str, Any]:
        found = each.with_value(said.values.get(each.name, wish.texts[each.name])).shown()
        if each.name in said.choices:
            found["choices"] = [list(choice) for choice in said.choices[each.name]]
        return found
