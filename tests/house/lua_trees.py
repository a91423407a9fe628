"""The syntax tree of a Lua module, kept in `.lua_cache` until its text changes.

luaparser takes six seconds for the library, and `make lua` and `make twins` read it after each save: only what was
saved is parsed again.
"""

from __future__ import annotations

import hashlib
import json
import os
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from luaparser import ast
from luaparser import astnodes as lua

Node: TypeAlias = Any  # luaparser carries no types
KEPT: Final = Path(__file__).resolve().parents[2] / ".lua_cache"
MAX_KEPT: Final = 200
"""Trees in the folder: three times the modules of the library."""

ABOUT: Final = hashlib.sha256(Path(__file__).read_bytes() + version("luaparser").encode()).hexdigest()
"""What else a kept tree depends on."""

UNREAD: Final = ("_name", "_first_token", "_last_token", "comments")
"""What a node has, and no rule reads. Of its tokens only their lines are kept."""


class Token(NamedTuple):
    """What is known of the first or last token of a node."""

    line: int


def parsed(text: str) -> Node:
    """Return the syntax tree of *text*."""
    path = KEPT / f"{hashlib.sha256((ABOUT + text).encode()).hexdigest()}.json"
    try:
        return json.loads(path.read_bytes(), object_hook=_node)
    except (OSError, ValueError):  # it is not there, or was not written to its end
        _keep(path, json.dumps(ast.parse(text), default=_fields))
        return json.loads(path.read_bytes(), object_hook=_node)


def _keep(path: Path, tree: str) -> None:
    KEPT.mkdir(exist_ok=True)
    kept = sorted(KEPT.glob("*.json"), key=lambda each: each.stat().st_mtime)
    for each in kept[: max(0, len(kept) - MAX_KEPT)]:
        each.unlink(missing_ok=True)
    begun = path.with_suffix(f".{os.getpid()}")
    begun.write_text(tree)
    begun.replace(path)  # processes of one run of the tests write the same tree


def _fields(value: Any) -> dict[str, Any]:
    """Return what JSON has in place of a node, an enumeration or bytes."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, Enum):
        return {"enum": type(value).__name__, "name": value.name}
    fields = {name: each for name, each in vars(value).items() if name not in UNREAD}
    lines = [each and each.line for each in (value.first_token, value.last_token)]
    return {"node": type(value).__name__, "lines": lines, "fields": list(fields.items())}


def _node(found: dict[str, Any]) -> Any:
    if "bytes" in found:
        return found["bytes"].encode("latin-1")
    if "enum" in found:
        return getattr(lua, found["enum"])[found["name"]]
    kind = getattr(lua, found["node"])
    node = kind.__new__(kind)
    vars(node).update(found["fields"])
    node._first_token, node._last_token = (None if line is None else Token(line) for line in found["lines"])
    return node
