"""Load the Lua scripts: read their files, put in the functions that they use, and compute their hashes.

A verb is one file `lua/<name>.lua`. A line `--- @use leases, window` is replaced by those functions and constants of
`lua/modules/leases.lua` and `lua/modules/window.lua` that the code below it uses, up to the end of its block. Making a
function costs Redis as much as calling it. So a script gets only the functions that it uses, and a block that rarely
runs makes its own.

A verb that is called for single messages begins with its *straight part*: the common case, without any function. It
stands between the lines `--- @straight` and `--- @general`. The general part, which follows, knows every case. So tests
may leave the straight part out (`leave_out_straight`), and nothing but the time that a call takes may differ.

A `Script` is a plain value. Drivers send its SHA-1, and its source if the server does not know the hash. With the new
engine (`engine.py`) a verb is a function of a library (`library.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from shardq import engine
from shardq.protocol.library import Library
from shardq.protocol.library import read as read_library
from shardq.protocol.script import Line, Script

_USE = re.compile(r"^( *)--- @use (\w+(?:, \w+)*)$", re.MULTILINE)
_PART = re.compile(r"^local (?:function )?(\w+).*(?:\n(?!local |--).*)*", re.MULTILINE)
_STRAIGHT = re.compile(r"^--- @straight$.*?(?=^--- @general$)", re.MULTILINE | re.DOTALL)
_SILENT = re.compile(r"""--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")  # comments and strings
_WORD = re.compile(r"(?<![\w:])(?<!(?<!\.)\.)[A-Za-z_]\w*")  # but not the name of a field


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
    """One function or constant of a module, and in which line of it this begins."""

    name: str
    module: str
    line: int
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
    return "\n".join([text for _, _, text in _lines(name, source, straight=straight)])


def _lines(name: str, source: Traversable, *, straight: bool) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of that text, each as file, number in the file, and text: values would take longer to make."""
    text = _read(source, name)
    file, numbers = f"{name}.lua", [*range(1, text.count("\n") + 2)]
    if not straight and (found := _STRAIGHT.search(text)):
        del numbers[text.count("\n", 0, found.start()) : text.count("\n", 0, found.end())]
        text = text[: found.start()] + text[found.end() :]
    uses = {text.count("\n", 0, use.start): use for use in uses_in(text, source)}
    for at, line in enumerate(text.split("\n")):
        use = uses.get(at)
        if use is None or not use.parts:
            yield file, numbers[at], "" if use else line
            continue
        for part in use.parts:
            for number, each in enumerate(part.text.splitlines(), part.line):
                yield f"modules/{part.module}.lua", number, use.indent + each


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
    parts, line, at = [], 1, 0
    for match in _PART.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        parts.append(Part(match[1], module, line, match[0].rstrip()))
    return parts, others


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
    """Return the script called *name* of this process's engine. FileNotFoundError if there is none."""
    functions = library()
    if functions is not None and name in functions.verbs:
        return functions.script(name)
    return _script(name, root(), _Form.straight)  # type: ignore[arg-type] # every folder is hashable


def library() -> Library | None:
    """Return the library of this process's engine; None if it is the old one, which has scripts only."""
    return _library(root()) if engine.NEW else None  # type: ignore[arg-type] # every folder is hashable


def own_library() -> Library | None:
    """Return the library of this version of shardq, whichever engine runs; None if it has none."""
    there = root().joinpath("engine", "order.txt").is_file()
    return _library(root()) if there else None  # type: ignore[arg-type] # every folder is hashable


@cache
def _library(folder: Traversable) -> Library:
    return read_library(folder.joinpath("engine"))


@cache  # tests change the form again and again
def _script(name: str, folder: Traversable, straight: bool) -> Script:
    source = join(name, folder, straight=straight)
    _, _, flags = source.partition("\n")[0].partition("flags=")
    return Script.of(name, source, source, filter(None, flags.split(",")))


def names() -> list[str]:
    """Return the names of all verbs, sorted."""
    scripts = {item.name.removesuffix(".lua") for item in root().iterdir() if item.name.endswith(".lua")}
    functions = library()
    return sorted(scripts.union(functions.verbs if functions else ()))


def listing(name: str) -> list[Line]:
    """Return the lines that Redis runs for the verb called *name*. FileNotFoundError if there is none."""
    functions = library()
    if functions is not None and name in functions.verbs:
        return functions.listing(name)
    return [Line(*each) for each in _lines(name, root(), straight=_Form.straight)]
