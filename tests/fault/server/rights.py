"""Which commands of Redis each verb of the library may run: whatever its functions and those they call may.

A right that is missing is found only when the command is run, and then part of a call may have happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from shardq.protocol import scripts

_MODULE = re.compile(r"[a-z_]+")
_BEGINS = re.compile(r"(?:local )?function (?:(?P<table>\w+)\.)?(?P<name>\w+)\(")
_NAMED = re.compile(r"\b(?:([A-Z]\w*)\.)?([a-z_]\w*)\b")
_COMMAND = re.compile(r"\b(?:call|pcall_redis)\(\s*'([A-Z]+)'(?:, '([A-Z]+)')?")
_SENT = re.compile(r"\bsend\(q, '\w+', '([A-Z]+)'")
_LOOK = re.compile(r"'((?:H|X)LEN|(?:S|Z)CARD)'")
_CONTAINERS = frozenset({"XGROUP"})


@cache
def _functions() -> dict[tuple[str, str], str]:
    """The text of each function, by module and name; that of a module's own lines under ''."""
    engine = scripts.root()
    found: dict[tuple[str, str], str] = {}
    for module in _MODULE.findall(re.sub(r"#.*", "", engine.joinpath("order.txt").read_text())):
        name = ""
        for line in engine.joinpath(f"{module}.lua").read_text().splitlines():
            code = line.partition("--")[0].rstrip()
            if begins := _BEGINS.match(code):
                name = begins["name"] if begins["table"] != "verbs" else f"verbs.{begins['name']}"
            found[module, name] = f"{found.get((module, name), '')}{code}\n"
            if code == "end" or (begins and code.endswith(" end")):
                name = ""
    return found


def _called(module: str, text: str) -> Iterator[tuple[str, str]]:
    """The functions that a function names."""
    functions = _functions()
    for table, name in _NAMED.findall(text):
        owner = re.sub(r"(?<!^)([A-Z])", r"_\1", table).lower() or (module if (module, name) in functions else "base")
        if (owner, name) in functions:
            yield owner, name


def commands_of(verb: str) -> set[str]:
    """The commands that *verb* may run, as an ACL names them."""
    functions = _functions()
    module = next(module for module, name in functions if name == f"verbs.{verb}")
    reached, ahead = set(), [(module, f"verbs.{verb}")]
    while ahead:
        if (one := ahead.pop()) not in reached:
            reached.add(one)
            ahead += _called(one[0], functions[one])
    found: set[str] = set()
    for owner, name in reached:
        text = functions[owner, name]
        found.update(f"{word}|{more}" if word in _CONTAINERS else word for word, more in _COMMAND.findall(text))
        found.update(_SENT.findall(text))
    return {word.lower() for word in found}
