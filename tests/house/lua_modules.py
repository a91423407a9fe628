"""The modules of the library together: which names each may use, and what each verb reaches through them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from shardq.protocol import sources
from shardq.protocol.library import Library
from tests.house.lua_scope import Function, Walk

BASE = sources.BASE
PLACE = re.compile(r"local ([A-Z_]+) = (\d+)")
FIRST = re.compile(r"-- KEYS\[1\.\.(\d+)\]: ")
ARGUMENT = re.compile(r"-- (KEYS|ARGV)\[(\d+)(\.\.)?\] (\w+): \S")


@cache
def _walk(text: str) -> Walk:
    return Walk(text)


@dataclass(frozen=True)
class Module:
    """One module: its text, and what it does. `own` is the name of the table with what others use of it."""

    name: str
    text: str

    @cached_property
    def walk(self) -> Walk:
        """What it does."""
        return _walk(self.text)

    @property
    def own(self) -> str:
        """The name of its table."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    def full(self, name: str) -> str:
        """The name that all modules know for what this one calls *name*."""
        defined = {*self.walk.constants, *(each.name for each in self.walk.functions)}
        return f"{self.name}.{name}" if "." not in name and name in defined else name


@dataclass(frozen=True)
class Verb:
    """One verb: its module, its function, its flags, and the header that stands above it."""

    name: str
    module: str
    function: Function
    flags: tuple[str, ...]
    header: tuple[str, ...]
    shared: int = 0  # how many of the first keys of a queue its header names in one line
    keys: dict[int, str] = field(default_factory=dict)
    rest: int = 0  # where any number of keys begins, 0: nowhere
    args: dict[int, str] = field(default_factory=dict)
    more: int = 0  # where any number of ARGV begins


@dataclass(frozen=True)
class Modules:
    """All modules of a folder, in their order."""

    folder: Path

    @cached_property
    def library(self) -> Library:
        """The library, as shardq itself reads it."""
        return sources.read(self.folder)

    @cached_property
    def all(self) -> list[Module]:
        """The modules in their order."""
        lines = (self.folder / "order.txt").read_text().splitlines()
        names = [name for line in lines if (name := line.partition("#")[0].strip())]
        return [Module(name, (self.folder / f"{name}.lua").read_text()) for name in names]

    @cached_property
    def places(self) -> dict[str, int]:
        """The places of the keys of a queue, as the base names them."""
        lines = self.all[0].text.splitlines()
        return {found[1]: int(found[2]) for line in lines if (found := PLACE.fullmatch(line))}

    @cached_property
    def functions(self) -> dict[str, tuple[Module, Function]]:
        """All functions by their full names: "turns.find_heads", "Turns.schedule", "base.add", "verbs.read"."""
        return {module.full(each.name): (module, each) for module in self.all for each in module.walk.functions}

    @cached_property
    def names(self) -> dict[str, str]:
        """What modules define for others, with the module of each: "Turns.schedule", and of the base "add"."""
        found: dict[str, str] = {}
        for module in self.all:
            defined = [*module.walk.constants, *(each.name for each in module.walk.functions)]
            found |= {name: module.name for name in defined if "." in name or module.name == BASE}
        return found

    @cached_property
    def verbs(self) -> list[Verb]:
        """The verbs, in the order of the library."""
        return [self._verb(name) for name in self.library.verbs]

    def _verb(self, name: str) -> Verb:
        module, function = self.functions[f"verbs.{name}"]
        lines, end = module.text.splitlines(), function.line - 1
        start = end
        while start and lines[start - 1].startswith("--"):
            start -= 1
        header = tuple(lines[start:end])
        known = [found for line in header if (found := ARGUMENT.match(line))]
        first = next((int(found[1]) for line in header if (found := FIRST.match(line))), 0)
        keys = {at: place.lower() for place, at in self.places.items() if at <= first}
        fixed = {(each[1], int(each[2])): each[4] for each in known if not each[3]}
        many = {each[1]: int(each[2]) for each in known if each[3]}
        return Verb(
            name, module.name, function, self.library.verbs[name].flags, header, first,
            keys | {at: key for (table, at), key in fixed.items() if table == "KEYS"}, many.get("KEYS", 0),
            {at: each for (table, at), each in fixed.items() if table == "ARGV"}, many.get("ARGV", 0),
        )  # fmt: skip

    def reached(self, start: str, without: str = "") -> Iterator[tuple[Module, Function]]:
        """The functions that the one of this full name may run, itself first; not the one called *without*."""
        waiting, seen = [start], {start, without}
        while waiting:
            module, function = self.functions[waiting.pop(0)]
            yield module, function
            for name in function.refers:
                full = module.full(name)
                full = full if full in self.functions else f"{BASE}.{name}"
                if full in self.functions and full not in seen:
                    seen.add(full)
                    waiting.append(full)
