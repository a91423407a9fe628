"""The Lua sources: found in the wheel or in the checkout, joined with their includes, hashed.

A verb is one file `lua/<name>.lua`; a line `--- @include lib/<name>` is replaced by that file, once per script.
A `Script` is a plain value; drivers send its SHA-1 first and its source when a server does not know it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_INCLUDE = re.compile(r"^--- @include ([\w/]+)$", re.MULTILINE)
_KEY = re.compile(r"^-- KEYS\[\d+(\.\.)?\] (\w+): ", re.MULTILINE)
"""A line of a header that names a key, or (`..`) the last one, which stands for any number of keys."""


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script, ready to run.

    `keys` are the names of the keys that it wants, in order, as its header calls them; `rest` is the name of any number
    of keys that may follow these, '' if none may.
    """

    name: str
    source: str
    sha: str
    readonly: bool
    keys: tuple[str, ...]
    rest: str

    def __repr__(self) -> str:
        """Short, since sources are long."""
        return f"Script({self.name})"


@cache
def root() -> Traversable:
    """The folder of the Lua sources; in an editable install they lie beside the package."""
    packaged = files("shardq").joinpath("lua")
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parent.parent / "lua"
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError("shardq's Lua scripts are missing from this install; install shardq again")


def join(name: str, source: Traversable) -> str:
    """The text of script *name* under *source* with every include in place, each only at its first mention."""
    seen: set[str] = set()

    def expand(path: str) -> str:
        text = source.joinpath(*f"{path}.lua".split("/")).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda match: include(match[1]), text)

    def include(path: str) -> str:
        if path in seen:
            return ""
        seen.add(path)
        return expand(path)

    return expand(name)


@cache
def load(name: str) -> Script:
    """The script called *name*; FileNotFoundError if there is none."""
    source = join(name, root())
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    named = _KEY.findall(source)
    keys = tuple(key for more, key in named if not more)
    rest = "".join(key for more, key in named if more)
    return Script(name, source, sha, "no-writes" in source.partition("\n")[0], keys, rest)


def names() -> list[str]:
    """All verbs, sorted."""
    return sorted(item.name.removesuffix(".lua") for item in root().iterdir() if item.name.endswith(".lua"))
