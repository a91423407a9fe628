"""Which command of Redis each verb may run on which key: whatever its functions, and those they call, may.

`python -m tests.house.lua_rights` writes shardq/protocol/rights.py, from which `shardq server acl` makes the users;
`make lua` compares. A right that is missing is found only when the command is run, and then part of a call may have
happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from luaparser import astnodes as lua

from tests.house.lua_modules import Module, Modules, Verb
from tests.house.lua_scope import Function, RedisCall, Scope, Valued, member, text_of
from tests.house.lua_verbs import FROM_A_KEY, KEY_SECOND, is_unpacked_keys, key_of

ROOT: Final = Path(__file__).resolve().parents[2]
MADE: Final = ROOT / "shardq" / "protocol" / "rights.py"
LAST: Final = "legacy"
"""What the last of a verb's keys may be."""
CHECKS: Final = frozenset({"hlen", "zcard", "xlen"})
"""What `check_types` does with a list of keys, which may be empty."""

ALL: Final = "any"
"""Several keys of a queue in one command."""
FOUND: Final = "find"
CREATES: Final = "queue.create_queue"
"""What `find` never gets to: it is `open`, by a user who may not create what is missing."""

HEAD: Final = '''"""Which commands each verb may run, by key. Generated from lua/, do not change: run `make twins`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RIGHTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({
'''
FOOT: Final = '''})  # fmt: skip
"""Verb -> key -> commands, as an ACL names them. A key "" stands for commands without one, "streams" for all streams,
"rest" and "keys" for all keys of the queue, "any" for several of them in one command, "legacy" for the legacy stream.
The verb "find" is `open` of a queue whose keys all exist.
"""
'''

Place = tuple[Module, Function]


@dataclass
class Rights:
    """What one verb may do. `found` has the commands by key."""

    modules: Modules
    verb: Verb
    without: str = ""  # a function that it never gets to, by its full name
    found: dict[str, set[str]] = field(default_factory=dict)
    seen: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reached = list(self.modules.reached(f"verbs.{self.verb.name}", self.without))
        filled = {text_of(site.values[1]) for _, each in self.reached for site in each.sites if site.name == "add"}
        for at in self.reached:
            for each in at[1].calls:
                # `send` itself gets the command as a parameter; and a list to which nothing is added is never sent
                # (None: something is added to a list that a parameter names).
                if each.command and (not each.sent or {each.sent.upper(), None} & filled):
                    self._note(each, at)

    def _note(self, call: RedisCall, at: Place) -> None:
        command = str(call.command).lower()
        if call.command in KEY_SECOND:
            command += f"|{call.args[1].s.decode().lower()}"
        key = key_of(call)
        self.seen.clear()
        # `send` gets the place of its key.
        keys = self._keys_at(key, call.scope) if call.sent else self._keys(key, call.scope, at) if key else set()
        if key is not None and not keys and command not in CHECKS:
            raise LookupError(f"{at[1].name} of {self.verb.name}: cannot tell the key of {command}, line {call.line}")
        if self.verb.rest == 0:
            keys -= {self._rest()}  # it is given none of these
        for each in {""} if key is None else keys:
            self.found.setdefault(each, set()).add(command)

    def _keys(self, node: Any, scope: Scope, at: Place) -> set[str]:
        """The names of the keys that *node* may be."""
        if isinstance(node, lua.Name):
            return self._keys_of_local(node.id, scope, at)
        if isinstance(node, lua.AndLoOp | lua.OrLoOp):
            return self._keys(node.left, scope, at) | self._keys(node.right, scope, at)
        if isinstance(node, lua.Index) and node.notation is lua.IndexNotation.SQUARE:
            return self._keys_at(node.idx, scope)
        if isinstance(node, lua.Index):
            return self._joined(self._fields(node.idx.id))
        if isinstance(node, lua.Call) and member(node.func) in FROM_A_KEY:
            return {self._rest()}
        if is_unpacked_keys(node):
            return {ALL}
        if isinstance(node, lua.Table):
            return set().union(*(self._keys(each.value, scope, at) for each in node.fields))
        return set()  # another field of that name: a number, or a text

    def _keys_of_local(self, name: str, scope: Scope, at: Place) -> set[str]:
        local = scope.find(name)
        if local is None:
            raise LookupError(f"{at[1].name} of {self.verb.name}: cannot tell which key {name} is")
        if (id(local), name) in self.seen:
            return set()
        if name == "KEYS":  # all of them, in a loop
            return {*self.verb.keys.values(), *([self._rest()] if self.verb.rest else [])}
        self.seen.add((id(local), name))
        if local.over is not None:
            return self._keys(local.over, scope, at)
        if local.kind == "parameter":
            return self._joined(self._arguments(name, at))
        return set().union(*(self._keys(value, where, at) for value, where in local.values))

    def _joined(self, values: Iterator[tuple[Any, Scope, Place]]) -> set[str]:
        return set().union(*(self._keys(*each) for each in values))

    def _arguments(self, name: str, at: Place) -> Iterator[tuple[Any, Scope, Place]]:
        """What the function is given as its parameter *name*, wherever the verb may call it."""
        number, own = at[1].parameters.index(name), at[0].full(at[1].name)
        for where in self.reached:
            for site in where[1].sites:
                if self._full(where[0], site) == own and number < len(site.values):
                    yield site.values[number], site.scope, where

    def _full(self, module: Module, site: Valued) -> str:
        full = module.full(site.name)
        return full if full in self.modules.functions else f"base.{site.name}"

    def _fields(self, name: str) -> Iterator[tuple[Any, Scope, Place]]:
        """The values of all fields of this name."""
        for where in self.reached:
            for each in where[1].fields:
                if each.name == name:
                    yield each.values[0], each.scope, where

    def _keys_at(self, index: Any, scope: Scope) -> set[str]:
        """The keys at this index of KEYS."""
        if isinstance(index, lua.Number):
            return {self.verb.keys.get(int(index.n)) or self._rest()}
        if isinstance(index, lua.Name) and index.id in self.modules.places:
            return {index.id.lower()}
        if isinstance(index, lua.ULengthOP):
            return {LAST}
        local = scope.find(index.id) if isinstance(index, lua.Name) else None
        if local is not None and isinstance(local.over, lua.Table):
            return {each.value.id.lower() for each in local.over.fields}
        return {self._rest()}

    def _rest(self) -> str:
        return self.modules.library.verbs[self.verb.name].rest


def lines(modules: Modules) -> Iterator[str]:
    """The table, a line for each verb and key."""
    tables = {verb.name: Rights(modules, verb).found for verb in modules.verbs}
    (opening,) = (verb for verb in modules.verbs if verb.name == "open")
    tables[FOUND] = Rights(modules, opening, CREATES).found
    for verb, found in sorted(tables.items()):
        yield f'    "{verb}": {{'
        for key, commands in sorted(found.items()):
            yield f'        "{key}": "{" ".join(sorted(commands))}",'
        yield "    },"


def text(modules: Modules) -> str:
    """What the file must be."""
    return HEAD + "".join(f"{line}\n" for line in lines(modules)) + FOOT


def is_stale(modules: Modules) -> bool:
    """Whether the file is not what the modules make of it."""
    return not MADE.exists() or MADE.read_text(encoding="utf-8") != text(modules)


if __name__ == "__main__":
    MADE.write_text(text(Modules(ROOT / "lua")), encoding="utf-8")
