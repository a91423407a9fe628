"""Load the Lua scripts: read their files, put in the functions that they use, and compute their hashes.

A verb is one file `lua/<name>.lua`. A line `--- @use leases, window` is replaced by those functions and constants of
`lua/modules/leases.lua` and `lua/modules/window.lua` that the code below it uses, up to the end of its block. Making a
function costs Redis as much as calling it. So a script gets only the functions that it uses, and a block that rarely
runs makes its own.

A verb that is called for single messages begins with its *straight part*: the common case, without any function. It
stands between the lines `--- @straight` and `--- @general`. The general part, which follows, knows every case. So tests
may leave the straight part out (`leave_out_straight`), and nothing but the time that a call takes may differ.

A `Script` is a plain value. Drivers send its SHA-1, and its source if the server does not know the hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from shardq.protocol.engine import NEXT

_KEY = re.compile(r"^-- KEYS\[\d+(\.\.)?\] (\w+): ", re.MULTILINE)
"""A line of a header that names a key. With `..` it is the last one, which stands for any number of keys."""
_USE = re.compile(r"^( *)--- @use (\w+(?:, \w+)*)$", re.MULTILINE)
_PART = re.compile(r"^local (?:function )?(\w+).*(?:\n(?!local |--).*)*", re.MULTILINE)
_STRAIGHT = re.compile(r"^--- @straight$.*?(?=^--- @general$)", re.MULTILINE | re.DOTALL)
_SILENT = re.compile(r"""--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")  # comments and strings
_WORD = re.compile(r"(?<![\w:])(?<!(?<!\.)\.)[A-Za-z_]\w*")  # but not the name of a field


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script, ready to run.

    `keys` are the names of its keys in the order of its header. `rest` names the keys, any number, that may follow
    these; '' if none may.
    """

    name: str
    source: str
    sha: str
    readonly: bool
    keys: tuple[str, ...]
    rest: str

    def __repr__(self) -> str:
        """Show the name only, since sources are long."""
        return f"Script({self.name})"


@cache
def root() -> Traversable:
    """Return the folder of the Lua files. In an editable install it lies beside the package."""
    packaged = files("shardq").joinpath("lua")
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "lua"
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError("shardq's Lua scripts are missing from this install; install shardq again")


@dataclass(frozen=True, slots=True)
class Part:
    """One function or constant of a module."""

    name: str
    module: str
    text: str

    @property
    def uses(self) -> tuple[str, ...]:
        """The names in its text. Among them are the parts that it uses."""
        return words_in(self.text)


@dataclass(frozen=True, slots=True)
class Use:
    """One `@use` line of a script: its position, the end of its block, the modules it names and the parts it places."""

    start: int
    end: int
    indent: str
    modules: tuple[str, ...]
    parts: tuple[Part, ...]


def join(name: str, source: Traversable, *, straight: bool = True) -> str:
    """Return the text of script *name* in folder *source*, with all used functions put in.

    Its straight part is left out unless *straight*.
    """
    text, joined, at = _read(source, name), [], 0
    if not straight:
        text = _STRAIGHT.sub("", text)
    for use in uses_in(text, source):
        line_end = text.index("\n", use.start) if "\n" in text[use.start :] else len(text)
        lines = "\n".join(part.text for part in use.parts).splitlines()
        joined += [text[at : use.start], "\n".join(use.indent + line for line in lines)]
        at = line_end
    return "".join([*joined, text[at:]])


def uses_in(text: str, source: Traversable) -> list[Use]:
    """Return the `@use` lines of a script's *text*, each with the parts that it places there."""
    found = [
        (match.start(), _block_end(text, match.end(), match[1]), match[1], tuple(match[2].split(", ")))
        for match in _USE.finditer(text)
    ]
    parts = _parts_of({module for *_, modules in found for module in modules}, source)
    uses: list[Use] = []
    for start, end, indent, modules in found:
        placed = {part.name for use in uses if use.end >= end for part in use.parts}
        needed: list[str] = []
        for module in modules:
            # A later `@use` line inside this block places what it needs of the same module itself.
            later = [(since, until) for since, until, _, others in found if start < since < end and module in others]
            words = words_in(_without(text, start, end, later))
            needed += [name for name, part in parts.items() if part.module == module and name in words]
        uses.append(Use(start, end, indent, modules, tuple(_in_order(needed, placed, parts))))
    return uses


def parts_in(module: str, source: Traversable) -> tuple[list[Part], tuple[str, ...]]:
    """Return the functions and constants of lua/modules/*module*.lua in order, and the modules that it uses."""
    text = _read(source, f"modules/{module}")
    others = tuple(name for match in _USE.finditer(text) for name in match[2].split(", "))
    return [Part(match[1], module, match[0].rstrip()) for match in _PART.finditer(text)], others


def _parts_of(modules: Iterable[str], source: Traversable) -> dict[str, Part]:
    """Return, by name, all parts of these modules and of the modules that they use."""
    parts: dict[str, Part] = {}
    unread, visited = sorted(modules), set(modules)
    while unread:
        found, others = parts_in(unread.pop(), source)
        parts |= {part.name: part for part in found}
        unread += [other for other in others if other not in visited]
        visited.update(others)
    return parts


def _in_order(needed: Iterable[str], placed: set[str], parts: dict[str, Part]) -> Iterator[Part]:
    """Yield these parts and the parts that they use, each after those it uses, except those already *placed*."""
    for name in needed:
        if name in placed:
            continue
        placed.add(name)
        yield from _in_order((word for word in parts[name].uses if word in parts), placed, parts)
        yield parts[name]


def _block_end(text: str, start: int, indent: str) -> int:
    """Return where the block at *indent* ends: at the next line that is indented less."""
    outside = re.compile(rf"^ {{0,{len(indent) - 1}}}[^ \n]", re.MULTILINE) if indent else None
    found = outside.search(text, start) if outside else None
    return found.start() if found else len(text)


def _without(text: str, start: int, end: int, gaps: list[tuple[int, int]]) -> str:
    kept = []
    for since, until in gaps:
        kept.append(text[start:since])
        start = max(start, until)
    return "".join([*kept, text[start:end]])


@cache  # verbs share their modules
def words_in(text: str) -> tuple[str, ...]:
    """Return the names in a piece of Lua, without names of fields."""
    return tuple(dict.fromkeys(_WORD.findall(_SILENT.sub("''", text))))


def _read(source: Traversable, path: str) -> str:
    return source.joinpath(*f"{path}.lua".split("/")).read_text(encoding="utf-8")


class _Form:
    """Whether scripts are loaded with their straight parts: always, but for tests."""

    straight = True


@contextmanager
def leave_out_straight() -> Iterator[None]:
    """Use only the general parts of scripts in this process meanwhile. For tests, which hold the two parts together."""
    _Form.straight = False
    load.cache_clear()
    try:
        yield
    finally:
        _Form.straight = True
        load.cache_clear()


@cache
def load(name: str) -> Script:
    """Return the script called *name*. FileNotFoundError if there is none."""
    if NEXT and name in _engine_verbs():
        return _engine_script(name)
    return _script(name, root(), _Form.straight)  # type: ignore[arg-type] # every folder is hashable


_FIRST = re.compile(r"^-- KEYS\[1\.\.(\d+)\]: ", re.MULTILINE)
_NUMBERED = re.compile(r"^local ([A-Z_]+) = (\d+)$", re.MULTILINE)


@cache
def _queue_keys() -> tuple[str, ...]:
    """The keys of a queue in the order of lua/engine/base.lua."""
    return tuple(name.lower() for name, _ in _NUMBERED.findall(_engine_texts()[0]))


_VERB = re.compile(r"^-- @verb (\w+)(?: \| ([\w, -]+))?: ", re.MULTILINE)


@cache
def _engine_verbs() -> dict[str, tuple[str, str]]:
    """The verbs of the next engine: the flags and the header of each."""
    found = {}
    for text in _engine_texts():
        for match in _VERB.finditer(text):
            found[match[1]] = (match[2] or "", text[match.start() : text.index("function verbs.", match.start())])
    return found


@cache
def _engine_texts() -> tuple[str, ...]:
    folder = root().joinpath("engine")
    names = [line for line in folder.joinpath("order.txt").read_text().splitlines() if line and line[0] != "#"]
    texts = []
    for name in names:
        text = folder.joinpath(f"{name}.lua").read_text(encoding="utf-8")
        own = "".join(part.capitalize() for part in name.split("_"))
        texts.append(text if name == "base" else f"local {own} = {{}}\ndo\n{text}end\n")
    return tuple(texts)


@cache
def _engine_script(name: str) -> Script:
    flags, header = _engine_verbs()[name]
    lines = [line for line in "".join(_engine_texts()).splitlines() if line.strip() and not line.strip().startswith("--")]
    source = f"#!lua{f' flags={flags}' if flags else ''}\n" + "\n".join(lines) + f"\nreturn verbs.{name}(KEYS, ARGV)\n"
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    named = _KEY.findall(header)
    first = int(found[1]) if (found := _FIRST.search(header)) else 0
    keys = _queue_keys()[:first] + tuple(key for more, key in named if not more)
    rest = "".join(key for more, key in named if more)
    return Script(name, source, sha, "no-writes" in flags, keys, rest)


@cache  # tests change the form again and again
def _script(name: str, folder: Traversable, straight: bool) -> Script:
    source = join(name, folder, straight=straight)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    named = _KEY.findall(source)
    keys = tuple(key for more, key in named if not more)
    rest = "".join(key for more, key in named if more)
    return Script(name, source, sha, "no-writes" in source.partition("\n")[0], keys, rest)


def names() -> list[str]:
    """Return the names of all verbs, sorted."""
    return sorted(item.name.removesuffix(".lua") for item in root().iterdir() if item.name.endswith(".lua"))
