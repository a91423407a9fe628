"""The house's rules for Lua, one function each: `python -m tests.house.lua_lint` checks the library's modules.

Rules that need no syntax tree read the text of a module, the others what `lua_scope` found in it. What a verb may do is
judged with all functions that it reaches (`lua_modules`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from luaparser import astnodes as lua
from lupa import lua51

from shardq.protocol.library import Library
from tests.house import lua_rights, lua_verbs
from tests.house.lua_modules import BASE, Module, Modules
from tests.house.lua_trees import Node

FOLDER = Path(__file__).resolve().parents[2] / "lua"
WIDEST = 120
MOST_LINES = 40
"""Of a function."""
MOST_VALUES = 7900
"""Lua's stack ends at 8,000."""
GIVEN = frozenset(
    {"error", "ipairs", "next", "pairs", "select", "setmetatable", "tonumber", "tostring", "type", "unpack"}
)
"""What every function may use of Lua. The rest (redis, string, math, table) has its names in the base, or none: cjson
loses digits, and not every server has the others."""
MADE = "new_"
"""A name that begins so makes a record (shardq/protocol/records.py)."""
OF_THE_BASE = frozenset({"redis", "string", "math", "table"})
CONSTANT = re.compile(r"[A-Z][A-Z_]*")
NAME = re.compile(r"[a-z]+(_[a-z0-9]+)*|_")
STATED = re.compile(r" at most ([\d,]*\d): \S")

# rules for the text of a module


def lines_fit(module: Module) -> Iterator[str]:
    """A line fits into a window."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if len(line) > WIDEST:
            yield f"{number}: the line has {len(line)} letters, more than {WIDEST}"


def unpack_is_bounded(module: Module) -> Iterator[str]:
    """Every `unpack` says in its line of how many values at most, and why: Lua's stack has an end."""
    for number, line in enumerate(module.text.splitlines(), 1):
        code, _, comment = line.partition("--")
        if "unpack(" not in code:
            continue
        stated = STATED.match(comment)
        if stated is None:
            yield f"{number}: unpack without a bound, such as `-- at most 500: a chunk`"
        elif int(stated[1].replace(",", "")) > MOST_VALUES:
            yield f"{number}: unpack of more than {MOST_VALUES:,} values"


def begins_with_a_comment(module: Module) -> Iterator[str]:
    """A module says at its top what it is."""
    if not module.text.startswith("-- "):
        yield "1: does not begin with a comment that says what it is"


# rules for what stands in a module


def functions_are_short(module: Module) -> Iterator[str]:
    """A function has no more lines than a reader keeps in mind."""
    for line, lines in [(each.line, each.lines) for each in module.walk.functions] + module.walk.nested:
        if lines > MOST_LINES:
            yield f"{line}: a function of {lines} lines, more than {MOST_LINES}"


def one_statement_a_line(module: Module) -> Iterator[str]:
    """Two statements of a block never share a line."""
    yield from (f"{line}: a second statement on the line" for line in module.walk.shared_lines)


def one_name_a_local(module: Module) -> Iterator[str]:
    """A `local` has one name, unless one call returns them all, or all are fields and first values."""
    for line, values in module.walk.several:
        if len(values) > 1 and not all(map(_is_plain, values)):
            yield f"{line}: several names in one `local`, of which one is worked out"


def _is_plain(node: Node) -> bool:
    match node:
        case lua.AddOp():
            return _is_plain(node.left) and isinstance(node.right, lua.Number)
        case lua.OrLoOp():
            return _is_plain(node.left) and _is_plain(node.right)
        case lua.Call():
            return getattr(node.func, "id", "") == "tonumber" and _is_plain(node.args[0])
        case lua.Table():
            return not node.fields
        case lua.ULengthOP():
            return _is_plain(node.operand)
    return isinstance(node, lua.Index | lua.Name | lua.Number | lua.String | lua.Nil | lua.FalseExpr | lua.TrueExpr)


def names_are_spelled(module: Module) -> Iterator[str]:
    """Functions and variables are small letters with underscores; constants are capitals, numbers, texts or lists."""
    for each in module.walk.functions:
        if not NAME.fullmatch(each.name.partition(".")[2] or each.name):
            yield f"{each.line}: function {each.name} is not spelled in small letters"
    for local in module.walk.locals:
        if local.name not in {"KEYS", "ARGV", *module.walk.constants} and not NAME.fullmatch(local.name):
            yield f"{local.line}: {local.name} is not spelled in small letters"
    for name, (line, value) in module.walk.constants.items():
        if CONSTANT.fullmatch(name.partition(".")[2] or name) and not _is_constant(value):
            yield f"{line}: {name} is not a number, a text or a list of such"


def _is_constant(node: Any) -> bool:
    if isinstance(node, lua.Table):
        return all(_is_constant(each.value) for each in node.fields)
    if isinstance(node, lua.AriOp):
        return all(_is_constant(each) or isinstance(each, lua.Name | lua.Index) for each in (node.left, node.right))
    return isinstance(node, lua.Number | lua.String) or (
        isinstance(node, lua.UMinusOp) and isinstance(node.operand, lua.Number)
    )


def nothing_changes_between_calls(module: Module) -> Iterator[str]:
    """What stands at the top of a module is set once: what changes during a call lies in `q`."""
    yield from (f"{line}: neither a constant nor a function" for line in module.walk.strays)
    yield from (f"{line}: global {name} is written" for line, name in module.walk.global_writes)
    for line, name in module.walk.kept:
        if (module.name, name) not in KEPT:
            yield f"{line}: {name} outlives a call: what changes lies in `q`"


_CACHE = "a value follows from its text alone, is never changed, and bytes are bounded by `keep`"
_SPELLED = "a text follows from a whole number that a double holds exactly; at most 4,096, 4,096 and 1,000 of them"
KEPT = {
    ("rules", "Rules.known"): _CACHE,
    ("rules", "known_bytes"): _CACHE,
    ("limits", "known_limits"): _CACHE,
    ("limits", "known_bytes"): _CACHE,
    ("state", "known_lines"): _CACHE,
    ("state", "known_bytes"): _CACHE,
    ("state", "known_ends"): _CACHE,
    ("state", "known_bytes_of_ends"): _CACHE,
    ("arguments", "known"): _CACHE,
    ("arguments", "known_bytes"): _CACHE,
    ("streams", "known"): _CACHE,
    ("streams", "known_streams"): _CACHE,
    ("failures", "known_tries"): _CACHE,
    ("failures", "known_bytes"): _CACHE,
    ("base", "spelled"): _SPELLED,
    ("base", "small_numbers"): _SPELLED,
    ("base", "heads"): _SPELLED,
    ("base", "heads_known"): _SPELLED,
    ("base", "tails"): _SPELLED,
    ("read", "padded"): "a text follows from a whole number below 10,000",
}
"""What outlives a call, and why it may: all queues of a server share it, and each queue's users send what they like."""


def nothing_is_unused(module: Module) -> Iterator[str]:
    """No local, parameter or local function is there for nothing; `_` may be, and KEYS and ARGV come in their order."""
    for local in module.walk.locals:
        ours = module.name != BASE or local.kind in {"parameter", "loop"}
        if ours and not local.uses and local.name != "_" and local.name not in {"KEYS", "ARGV"}:
            yield f"{local.line}: {local.name} is not used"


OF_A_MODULE: tuple[Callable[[Module], Iterator[str]], ...] = (
    lines_fit,
    unpack_is_bounded,
    begins_with_a_comment,
    functions_are_short,
    one_statement_a_line,
    one_name_a_local,
    names_are_spelled,
    nothing_changes_between_calls,
    nothing_is_unused,
)

# rules for all modules


def compiles(library: Library) -> Iterator[str]:
    """The library is Lua 5.1."""
    try:
        lua51.LuaRuntime().compile(plain(library))
    except lua51.LuaSyntaxError as error:
        yield f"does not compile as Lua 5.1: {error}"


def plain(library: Library) -> str:
    """The text of the library with its `#!lua` line turned into a comment, as Redis does before compiling."""
    return re.sub(r"\A#!", "--", library.text)


def uses_only_what_is_before(modules: Modules) -> Iterator[str]:
    """A name is of the module itself, of Lua, of the base, or of a module before: later ones do not exist yet."""
    order = [module.name for module in modules.all]
    for module in modules.all:
        known = order[: order.index(module.name) + 1]
        for line, name in module.walk.reads:
            if problem := _unknown(name, module, modules.names, known):
                yield f"{module.name}:{line}: {problem}"


def _unknown(name: str, module: Module, names: dict[str, str], known: list[str]) -> str:
    table = name.partition(".")[0]
    if name in GIVEN or name.startswith(MADE) or (module.name == BASE and table in OF_THE_BASE):
        return ""
    if name not in names:
        return f"{name} is no name of Lua that may be used, of the base, or of a module"
    if names[name] not in known:
        return f"{name} is of {names[name]}.lua, which comes later"
    return ""


def all_is_used(modules: Modules) -> Iterator[str]:
    """What a module defines for others, another one uses; and what the base defines."""
    for name, of in modules.names.items():
        users = {module.name for module in modules.all for _, each in module.walk.reads if each == name}
        used_in_base = any(local.name == name and local.uses for local in modules.all[0].walk.locals)
        if of == BASE and not users and not used_in_base and name not in {"begin", "verbs"}:
            yield f"{of}: nothing uses {name}"
        elif of != BASE and "." in name and not name.startswith("verbs.") and not users - {of}:
            yield f"{of}: no other module uses {name}"


def fields_are_set_and_read(modules: Modules) -> Iterator[str]:
    """Each field of a table that is read is set somewhere, and each that is set is read: else one is misspelled."""
    found = {module.name: module.walk for module in modules.all}
    read = {name for walk in found.values() for _, _, name in walk.fields_read}
    written = {name for walk in found.values() for _, name in walk.fields_set}
    filled = {name for walk in found.values() for name in walk.filled}
    for module, walk in found.items():
        for line, table, name in walk.fields_read:
            if table not in filled and name not in written | {"err"}:  # Redis answers so
                yield f"{module}:{line}: field {name} is read and never set"
        for line, name in walk.fields_set:
            if name not in read | {"__index"}:  # Lua reads it
                yield f"{module}:{line}: field {name} is set and never read"


OF_ALL: tuple[Callable[[Modules], Iterator[str]], ...] = (
    uses_only_what_is_before,
    all_is_used,
    fields_are_set_and_read,
)


def check(modules: Modules) -> list[str]:
    """Everything that is wrong with the library, each with the module and the line."""
    if broken := [*compiles(modules.library)]:
        return broken
    problems: list[str] = []
    for module in modules.all:
        problems += [f"{module.name}:{problem}" for rule in OF_A_MODULE for problem in rule(module)]
    problems += [problem for rule in OF_ALL for problem in rule(modules)]
    for verb in modules.verbs:
        problems += [
            f"{verb.module}:{verb.function.line}: {verb.name}: {each}" for each in lua_verbs.check(modules, verb)
        ]
    return problems


def unused_reasons(modules: Modules) -> list[str]:
    """The names in `KEPT` of which nothing outlives a call any more."""
    kept = {(module.name, name) for module in modules.all for _, name in module.walk.kept}
    return [
        f"{module}: {name} has a reason in KEPT, and outlives no call" for module, name in sorted(KEPT.keys() - kept)
    ]


def luacheck(library: Library) -> list[str]:
    """What the real luacheck says, nothing where it is not on PATH."""
    tool = shutil.which("luacheck")
    if tool is None:
        return []
    options = ["--no-config", "--no-color", "--no-max-line-length", "--codes", "--formatter", "plain"]
    told = subprocess.run(
        [tool, "-", *options, "--std", "lua51", "--read-globals", "redis", "--filename", library.name],
        input=plain(library), capture_output=True, text=True,
    )  # fmt: skip
    lines = (told.stdout + told.stderr).splitlines()
    return [re.sub(rf"^{library.name}:(\d+)", lambda at: library.locate(int(at[1])), line) for line in lines]


def main() -> int:
    """Check the library; the exit status says whether anything is wrong."""
    modules = Modules(FOLDER)
    problems = check(modules) + unused_reasons(modules) + luacheck(modules.library)
    if not problems and lua_rights.is_stale(modules):
        problems = ["shardq/protocol/rights.py is not what lua/ makes of it: run make twins"]
    for problem in problems:
        print(problem, file=sys.stderr)
    checked_by = "the house's rules" + (" and luacheck" if shutil.which("luacheck") else ", luacheck is not on PATH")
    what = f"{len(modules.all)} modules, {len(modules.library.verbs)} verbs"
    print(f"lua: {what}, {checked_by}: {len(problems) or 'no'} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
