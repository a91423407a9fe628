"""The text about one thing on a screen: a sentence, and the lines below it."""

from __future__ import annotations

from typing import NamedTuple

from shardq.model.verdict import Severity
from shardq.outlook.sentence import Parts


class Said(NamedTuple):
    """A sentence, and what is said below it ([]: nothing more). `severity` says how much it needs somebody."""

    severity: Severity
    line: Parts
    second: Parts

    @property
    def sentence(self) -> str:
        """The sentence as plain text."""
        return "".join(self.line)

    @property
    def reason(self) -> str:
        """The lines below it, as plain text."""
        return "".join(self.second)


def said(severity: Severity, line: Parts, second: Parts | str = "") -> Said:
    """Make it of the parts of a sentence, and of what is said below it."""
    return Said(severity, line, [second] if isinstance(second, str) and second else list(second))


def sentences(*each: Parts | str) -> Parts:
    """Return several sentences as one text, with blanks between them; without those that are empty."""
    found: Parts = []
    for one in each:
        if one:
            found += [" "] if found else []
            found += [one] if isinstance(one, str) else one
    return found
