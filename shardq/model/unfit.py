"""Values that do not fit their types, and types that are not there: the texts about them."""

from __future__ import annotations

import re
from typing import Any, Final

from shardq.parts import bounded, kind_of

_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_QUOTED: Final = re.compile(r" (?:'.*'|`[^`]*`)$", re.DOTALL)
_OF_THE_TYPE: Final = ("Expected", "Object missing")
"""So begin texts of msgspec that quote the type. Others quote the payload."""


class Unfit(Exception):
    """The value that was read is not of the type.

    *path* leads to it, *why* says what is expected: no part of the payload.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path.lstrip('.')}: {why}" if path else why)
        self.path, self.why = path, why

    @classmethod
    def of(cls, error: Exception) -> Unfit:
        """Return what an *error* of msgspec says; one of this kind itself."""
        if isinstance(error, Unfit):
            return error
        text, _, where = str(error).rpartition(" - at `") if " - at `" in str(error) else (str(error), "", "")
        path = where.partition("$")[2].rstrip("`")
        if isinstance(error.__cause__, Exception):  # of a type's own making, such as __post_init__
            return cls(path, f"its type raised {type(error.__cause__).__name__}")
        if not text.startswith(_OF_THE_TYPE):
            text = _QUOTED.sub("", text)
        text = text.replace("`", "")
        if text.startswith("Object missing required field"):
            return cls(f"{path}.{text.rpartition(' ')[2]}", "missing")
        return cls(path, f"{text[:1].lower()}{text[1:]}")

    def told_of(self, value: Any) -> str:
        """Return path, type and reason for the writer of *value*."""
        kind = _kind_at(value, self.path)
        return f"{bounded(self.path)}: {kind} does not come back as it was sent: {self.why}"


def _kind_at(value: Any, path: str) -> str:
    """Return the type of what lies in *value* at a *path*; "what is there" if the path does not say where."""
    for name, number in _STEP.findall(path):
        try:
            if number:
                value = value[int(number)]
            elif isinstance(value, dict):
                value = value[name]
            else:
                value = getattr(value, name)
        except (LookupError, AttributeError, TypeError):
            return "what is there"
    return kind_of(value)


def unknown_name(what: str, error: NameError) -> str:
    """Return what to do where *what* names a class that is not there."""
    return (
        f"{what} names {error.name!r}, which is not there when the task is declared: define it above the task, at the "
        "top of a module, and import it outside of TYPE_CHECKING"
    )
