"""The fields of a dialog: a person's choices, and how the answers are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from shardq.arguments import line
from shardq.dashboard.actions.refused import ActionRefused
from shardq.errors import ConfigError
from shardq.ops.queue.who import MAX_NOTE

MAX_VALUE: Final = 1_100
"""Letters that a value from outside has at most: the name of a tenant is the longest that is typed."""

Kind = Literal["choice", "number", "line", "flag"]
Choices = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Field:
    """One field. Values are texts, as a form has them: "1" or "" for a flag, digits or "" for a number.

    `is_said` says whether what the dialog says depends on it: then what was read last is what is done. The action knows
    the choices of an `is_open` choice, which change.
    """

    name: str
    label: str
    kind: Kind
    value: str = ""
    hint: str = ""
    choices: Choices = ()
    low: float = 0.0
    high: float = 0.0
    is_whole: bool = False
    is_said: bool = True
    is_open: bool = False

    def read(self, text: str) -> Any:
        """Return the value of *text*: a text, a number or None, or True or False. Refused if it is none."""
        if len(text) > MAX_VALUE:
            raise ActionRefused(f"{self.label} is too long.")
        match self.kind:
            case "choice":
                if not self.is_open and text not in {value for value, _ in self.choices}:
                    raise ActionRefused(f"{self.label} is one of: {', '.join(words for _, words in self.choices)}.")
                return text
            case "number":
                return self._number(text.strip())
            case "line":
                return self._line(text.strip())
            case "flag":
                if text not in ("", "1"):
                    raise ActionRefused(f"{self.label} is on or off.")
                return text == "1"

    def _number(self, text: str) -> float | int | None:
        if not text:
            return None
        try:
            number = int(text) if self.is_whole else float(text)
        except ValueError:
            number = math.nan
        if not self.low <= number <= self.high:
            kind = "a whole number" if self.is_whole else "a number"
            raise ActionRefused(f"{self.label} is {kind} from {self.low:,g} to {self.high:,.15g}, or empty.")
        return number

    def _line(self, text: str) -> str:
        try:
            return line(self.label, text, MAX_NOTE) if text else ""
        except ConfigError as error:
            raise ActionRefused(f"{error}.") from None

    def with_value(self, value: str) -> Field:
        """Return it as it is shown with this value."""
        return replace(self, value=value)

    def shown(self) -> dict[str, Any]:
        """Return it as JSON."""
        found: dict[str, Any] = {"name": self.name, "label": self.label, "kind": self.kind, "value": self.value}
        if self.hint:
            found["hint"] = self.hint
        if self.kind == "choice":
            found["choices"] = [list(each) for each in self.choices]
        if self.kind == "number":
            found |= {"low": self.low, "high": self.high, "whole": self.is_whole}
        if self.kind == "line":
            found["longest"] = MAX_NOTE
        return found | {"said": self.is_said}


class Wish:
    """A person's choices: the values of fields by their names. At first nothing is chosen: `is_first`."""

    def __init__(self, fields: Sequence[Field], said: Mapping[str, str]) -> None:
        """Read the *said* values; the rest is as the fields have it. Refused if a value is none."""
        self.is_first = not any(each.name in said for each in fields if each.is_said)
        self.texts = {each.name: said.get(each.name, each.value) for each in fields}
        self._values = {each.name: each.read(self.texts[each.name]) for each in fields}

    def __getitem__(self, name: str) -> Any:
        """The value of a field."""
        return self._values[name]


NOTE: Final = Field("note", "Why", "line", hint="kept in the journal", is_said=False)

DURATIONS: Final[Choices] = (
    ("300", "5 minutes"), ("900", "15 minutes"), ("3600", "1 hour"), ("14400", "4 hours"), ("86400", "1 day"),
    ("604800", "7 days"), ("", "until somebody ends it"),
)  # fmt: skip
"""For how long a pause or a limit lasts, in seconds."""

DURATION_FIELD: Final = Field("seconds", "For", "choice", "3600", choices=DURATIONS)

RATE: Final = Field("rate", "Messages a second", "number", "50", "empty: as fast as it can", low=0.001, high=1_000_000)
