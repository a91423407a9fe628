"""The house's rules for lua/modules/ and for the verbs that use them; `lua_lint` runs them with its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from luaparser import ast
from luaparser import astnodes as lua

from shardq.protocol import scripts
from tests.house.lua_scope import Walk

MOST_LINES = 25
"""Of a function."""
GIVEN = {"redis", "string", "table", "math", "tonumber", "tostring", "type"} | {
    *("pairs", "ipairs", "unpack", "next", "select", "error", "pcall"),
}
"""What Redis gives to every function; KEYS and ARGV are for verbs alone."""
FUNCTION = re.compile(r"[a-z]+(_[a-z0-9]+)+")
CONSTANT = re.compile(r"[A-Z][A-Z_]*")


def check_modules(folder: Path) -> list[str]:
    """What is wrong with the modules under *folder*, one by one and together."""
    names = sorted(path.stem for path in (folder / "modules").glob("*.lua"))
    problems = [f"modules/{name}: {problem}" for name in names for problem in check_module(name, folder)]
    return problems + [f"modules/{problem}" for problem in _together(names, folder)]


def check_module(name: str, folder: Path) -> Iterator[str]:
    """What is wrong with one module, read with the names of those that it uses."""
    text = (folder / "modules" / f"{name}.lua").read_text()
    parts, others = scripts.parts_in(name, folder)
    foreign = {part.name: part.module for other in others for part in scripts.parts_in(other, folder)[0]}
    if not text.startswith("-- "):
        yield "does not begin with a comment that says what it is"
    yield from _top_level(text)
    yield from _documented(text)
    yield from _closed(Walk(text), set(foreign))
    words = {word for part in parts for word in part.uses}
    for other in others:
        if other not in {foreign.get(word) for word in words}:
            yield f"uses nothing of {other}"


def _top_level(text: str) -> Iterator[str]:
    """At the top there are constants and functions, nothing that could change."""
    for statement in ast.parse(text).body.body:
        if isinstance(statement, lua.LocalFunction):
            if not FUNCTION.fullmatch(statement.name.id):
                yield f"{statement.line}: function {statement.name.id} is not named `verb_noun`"
        elif not isinstance(statement, lua.LocalAssign):
            yield f"{statement.line}: neither a constant nor a function"
        elif len(statement.targets) != 1 or not CONSTANT.fullmatch(statement.targets[0].id):
            yield f"{statement.line}: not named `CONSTANT`"
        elif not all(map(_is_fixed, statement.values)) or not statement.values:
            yield f"{statement.line}: {statement.targets[0].id} is not a number or a text"


def _is_fixed(node: Any) -> bool:
    if isinstance(node, lua.Number | lua.String):
        return True
    return isinstance(node, lua.AriOp | lua.UMinusOp) and all(
        _is_fixed(value) for key, value in vars(node).items() if key in {"left", "right", "operand"}
    )


def _documented(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("local function ") and not lines[number - 2].startswith("-- "):
            yield f"{number}: no comment above says what the function does, and why"


def _closed(walk: Walk, foreign: set[str]) -> Iterator[str]:
    """A function has its parameters, its own module, the modules that this one uses, and what Redis gives."""
    yield from long_functions(walk)
    yield from (f"{line}: global {name} is written" for line, name in walk.global_writes)
    yield from (f"{use.line}: {use.table} in a module" for use in walk.uses)
    for line, name in walk.global_reads:
        if name not in GIVEN | foreign:
            yield f"{line}: {name} is neither a parameter, nor of this module or one that it uses"
    for local in walk.locals:
        if local.top and local.assigned:
            yield f"{local.line}: {local.name} is assigned again; state lies in `q` or in what a function returns"


def long_functions(walk: Walk) -> Iterator[str]:
    """Functions of more lines than a reader keeps in mind."""
    for line, lines in walk.functions:
        if lines > MOST_LINES:
            yield f"{line}: a function of {lines} lines, more than {MOST_LINES}"


def _together(names: list[str], folder: Path) -> Iterator[str]:
    """No name stands for two things, no circles, nothing that no verb uses."""
    modules = {name: scripts.parts_in(name, folder) for name in names}
    counted = Counter(part.name for parts, _ in modules.values() for part in parts)
    yield from (f"{name} is defined in {count} places" for name, count in counted.items() if count > 1)
    yield from (f"{name}: uses itself through others" for name in names if name in _reached(name, modules))
    texts = [path.read_text() for path in sorted(folder.glob("*.lua"))]
    placed = {part.name for text in texts for use in scripts.uses_in(text, folder) for part in use.parts}
    for name, (parts, _) in modules.items():
        yield from (f"{name}: no verb uses {part.name}" for part in parts if part.name not in placed)


def _reached(name: str, modules: dict[str, tuple[Any, tuple[str, ...]]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(modules[name][1])
    while waiting:
        other = waiting.pop()
        if other not in reached:
            reached.add(other)
            waiting += modules[other][1]
    return reached


def check_uses(text: str, folder: Path) -> Iterator[str]:
    """Each module that a verb names gives it something."""
    for use in scripts.uses_in(text, folder):
        words = scripts.words_in(text[use.start : use.end])
        for module in use.modules:
            if not any(part.name in words for part in scripts.parts_in(module, folder)[0]):
                yield f"{text.count(chr(10), 0, use.start) + 1}: nothing of {module} is used below"


def check_context(joined: Walk, own: Walk) -> Iterator[str]:
    """Every field of `q` that the joined text reads is set somewhere, and what the verb's own text sets is read."""
    sets, reads = {name for _, name in joined.context_sets}, {name for _, name in joined.context_reads}
    yield from (f"q.{name} is read and never set" for name in sorted(reads - sets))
    yield from (f"q.{name} is set and never read" for name in sorted({name for _, name in own.context_sets} - reads))
