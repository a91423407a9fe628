"""A script as a value: its text, its hash, and how a server gets it to run."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from shardq.protocol.library import Library

Form: TypeAlias = Literal["function", "hash", "source"]
"""The way in which a server runs a script: as a function of a library that it has loaded, by its hash, or by its
source.
"""
FUNCTION: Final = "function"
HASH: Final = "hash"
SOURCE: Final = "source"

_COMMANDS: Final = {FUNCTION: "FCALL", HASH: "EVALSHA", SOURCE: "EVAL"}


class ScriptLine(NamedTuple):
    """One line of what Redis runs, and its place in the sources, such as "turns.lua:42"; '' if it stands in none."""

    place: str
    text: str


class Script(msgspec.Struct, frozen=True, dict=True):
    """One verb, ready to run: a `function` of a `library`; where no library can be loaded, the same text as a script.

    `keys` are the names of its keys in the order of its header. `rest` names the keys, any number, that may follow
    these; '' if none may.
    """

    name: str
    keys: tuple[str, ...]
    rest: str
    flags: tuple[str, ...]
    function: str
    library: Library

    @cached_property
    def source(self) -> str:
        """The text of the script."""
        return "".join([f"{line.text}\n" for line in self.library.listing(self.name)])

    @cached_property
    def sha(self) -> str:
        """The hash of the script, by which a server knows it."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

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
