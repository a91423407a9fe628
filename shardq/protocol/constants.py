"""Put what never changes where its name stands, so that Lua takes no step to find it.

To Lua a constant is a local like any other: each use of `META` takes a step, and each use of `Overflow.BLOCK` a look
into a table, too. The sources have names; the text for Redis has `1` and `512` in their places. A constant stands in
capitals at the beginning of a line, and is a number, a text, or a sum of numbers.

For the same reason `-- @direct State.put ...` in base.lua names functions that calls of single messages use: each is a
local of the whole text, `State_put`. (Not all of them: Lua has at most 200 locals in one text.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Final

_DEFINED: Final = re.compile(r"(?:local ([A-Z][A-Z_\d]*)|([A-Z]\w*\.[A-Z][A-Z_\d]*)) = (.*)")
_LITERAL: Final = re.compile(r"\d+(?:\.\d+)?|'(?:[^'\\@]|\\.)*'")
_SUM: Final = re.compile(r"\d+(?: \+ \d+)+")
_NAME: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|--.*|(?<![\w.:])(?<!\blocal )([A-Z]\w*(?:\.\w+)?)""")
_CAPITAL: Final = re.compile(r"[A-Z]")
_DIRECT: Final = "-- @direct "

Values = MutableMapping[str, str]
"""By name, what stands in its place."""


def directs(lines: Iterable[str]) -> dict[str, str]:
    """Return by name the locals of the functions that these lines say are direct."""
    named = " ".join(line.removeprefix(_DIRECT) for line in lines if line.startswith(_DIRECT)).split()
    return {name: name.replace(".", "_") for name in named}


def replaced(values: Values, text: str) -> str:
    """Return *text* with the values of constants in place of their names."""
    if not _CAPITAL.search(text):
        return text
    return _NAME.sub(lambda found: values.get(found[1], found[1]) if found[1] else found[0], text)


def note(own: Values, shared: Values, text: str) -> bool:
    """Note the constant that *text*, a whole line, makes known; return whether it does.

    A local is known to its module, *own*; a field of a module's table to all that follow, *shared*.
    """
    found = _DEFINED.fullmatch(text)
    if not found:
        return False
    local, field, value = found.groups()
    if _SUM.fullmatch(value):
        value = str(sum(map(int, value.split(" + "))))
    is_constant = _LITERAL.fullmatch(value) is not None
    if local:
        own[local] = value if is_constant else local  # the module may hide a constant of base.lua
    elif is_constant:
        shared[field] = value
    return is_constant
