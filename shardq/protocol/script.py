"""A script as a value: its text, its hash, and how a server is told to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from shardq.protocol.library import Library

Form: TypeAlias = Literal["function", "hash", "source"]
"""How a server is told to run a script: as a function of a library that it has loaded, by its hash, or by its source.
"""
FUNCTION: Final = "function"
HASH: Final = "hash"
SOURCE: Final = "source"

_COMMANDS: Final = {FUNCTION: "FCALL", HASH: "EVALSHA", SOURCE: "EVAL"}


class Line(NamedTuple):
    """One line of what Redis runs, and in which line of which file it stands."""

    file: str
    number: int
    text: str

    @property
    def place(self) -> str:
        """Such as "turns.lua:42"; '' if it stands in no file."""
        return f"{self.file}:{self.number}" if self.file else ""


class Script(msgspec.Struct, frozen=True):
    """One verb, ready to run: a `function` of a `library`; where no library can be loaded, the same text as a script.

    `keys` are the names of its keys in the order of its header. `rest` names the keys, any number, that may follow
    these; '' if none may.
    """

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    rest: str
    flags: tuple[str, ...]
    function: str
    library: Library

    @property
    def readonly(self) -> bool:
        """Whether it writes nothing."""
        return "no-writes" in self.flags

    def __repr__(self) -> str:
        """Show the name only, since sources are long."""
        return f"Script({self.name})"

    def command(self, form: Form) -> tuple[str, str]:
        """Return the first two words of the command that runs it in this form."""
        runs = self.function if form is FUNCTION else self.sha if form is HASH else self.source
        return _COMMANDS[form] + ("_RO" if self.readonly else ""), runs
