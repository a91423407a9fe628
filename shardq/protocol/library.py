"""The library: one text with all verbs, which Redis loads once and then keeps.

It is named by a digest of its text, so different versions of shardq stand side by side on one server. `sources` makes
it from the modules of lua/: for a wheel when that is built, since it takes 30 ms, and in a checkout at each start.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from shardq.protocol.script import Script, ScriptLine

FILE: Final = "library.msgpack"
"""A wheel has the library in this file, beside this module."""

PREFIX: Final = "shardq_"
"""The names of shardq's libraries begin so."""

_AT = re.compile(r"\buser_(?:function|script):(\d+)")
"""How Redis names a line of what it runs, in the text of an error."""


class LibraryVerb(msgspec.Struct, frozen=True):
    """One function that clients call: its name and flags, and from its header the names of its keys, as in `Script`."""

    name: str
    flags: tuple[str, ...]
    keys: tuple[str, ...]
    rest: str


class Library(msgspec.Struct, frozen=True, eq=False):
    """The text to load, named by its digest, and its verbs.

    `places` has for each line of the text where it comes from, such as "turns.lua:42"; '' if it stands in no module.
    """

    name: str
    text: str
    verbs: dict[str, LibraryVerb]
    places: tuple[str, ...]

    def __repr__(self) -> str:
        """Show the name only, since the text is long."""
        return f"Library({self.name})"

    def function(self, verb: str) -> str:
        """Return the name of the function that *verb* is."""
        return f"{self.name}_{verb}"

    def script(self, name: str) -> Script:
        """Return the verb called *name*: the function, and a script of the same text. KeyError if there is none."""
        verb = self.verbs[name]
        return Script(name, verb.keys, verb.rest, verb.flags, self.function(name), self)

    def listing(self, name: str) -> list[ScriptLine]:
        """Return the lines of the script that runs the verb called *name* where the library cannot be loaded.

        Each has the number that it has in the library.
        """
        flags = self.verbs[name].flags
        first = f"#!lua flags={','.join(flags)}" if flags else "#!lua"
        lines = [*map(ScriptLine, self.places, self.text.split("\n"))]
        body = lines[1 : len(lines) - len(self.verbs)]
        return [ScriptLine("", first), *body, ScriptLine("", f"return verbs.{name}(KEYS, ARGV)")]

    def locate(self, line: int) -> str:
        """Return where a line of what was sent comes from, such as "turns.lua:42"; '' if it stands in no module."""
        return self.places[line - 1] if 0 < line <= len(self.places) else ""

    def explain(self, verb: str, text: str) -> str:
        """Return the *text* of an error of *verb*, with the places of lines in it: "turns.lua:42 (read)"."""
        return _AT.sub(lambda found: f"{place} ({verb})" if (place := self.locate(int(found[1]))) else found[0], text)


def encode(library: Library) -> bytes:
    """Return what `FILE` has."""
    return msgspec.msgpack.encode(library)


def decode(data: bytes) -> Library:
    """Return the library that was encoded."""
    return msgspec.msgpack.decode(data, type=Library)
