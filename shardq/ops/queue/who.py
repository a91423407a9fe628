"""The name of somebody who asks for a change, and a note: kept in the journal, and with a pause or limit."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardq.arguments import line
from shardq.ops.queue.state import QueueState

MAX_BY: Final = 100
MAX_NOTE: Final = 200
"""Characters that a name and a note may have."""
SEPARATOR: Final = "\x1f"
"""The separator of the client, the name and the note. None of them has it."""
BLANK: Final = "\x1e"
"""In place of a blank behind the number of a write, which ends at one."""


class Who(NamedTuple):
    """A name and a note of a change. None: the name of the client, and no note."""

    by: str | None = None
    note: str | None = None

    def said_by(self, state: QueueState) -> str:
        """Return the caller's text for a verb. ConfigError for a bad name or note."""
        by = "" if self.by is None else line("by", self.by, MAX_BY)
        # Somebody's object may not even be compared: only an empty text of Python's own is no note, as None is.
        is_empty = self.note is None or (type(self.note) is str and self.note == "")
        note = "" if is_empty or self.note is None else line("note", self.note, MAX_NOTE)
        return SEPARATOR.join((state.client, by, note)) if by or note else state.client

    def asked_by(self, state: QueueState) -> str:
        """Return the text for a write that names who asked for it, behind its number; '' if nobody was named."""
        client, between, said = self.said_by(state).partition(SEPARATOR)
        by, _, note = said.partition(SEPARATOR)
        return "".join((SEPARATOR, by or client, SEPARATOR, note)).replace(" ", BLANK) if between else ""


NOBODY: Final = Who()
