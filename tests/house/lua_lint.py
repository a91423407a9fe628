"""The house's rules for Lua, one function each: `python -m tests.house.lua_lint` checks lua/ and prints what is wrong.

Redis runs a script joined with its includes, so most rules read the joined text; the header is the file's own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from luaparser import astnodes as lua
from lupa import lua51

from tests.house import lua_modules
from tests.house.lua_scope import RedisCall, Scope, Walk, context_field, text_of

ROOT = Path(__file__).resolve().parents[2]
WIDEST = 120
MOST_VALUES = 7900
# no cjson (it loses digits), no cmsgpack, struct, bit (not in the fake), no os, io: Redis has none
GLOBALS = {"KEYS", "ARGV"} | lua_modules.GIVEN
KEYLESS = frozenset({"TIME", "PUBLISH"})
KEY_SECOND = frozenset({"XGROUP", "XINFO", "OBJECT", "MEMORY"})  # after a subcommand
KEY_AFTER_STREAMS = frozenset({"XREAD", "XREADGROUP"})
DOCUMENTED = re.compile(r"^-- (KEYS|ARGV)\[(\d+)(\.\.)?\d*\] (\w+): \S")
PART = re.compile(r"unpack\(\w+, from, upto\)")
STATED = re.compile(r" at most ([\d,]*\d)")


@dataclass(frozen=True)
class Source:
    """A verb: its own text, and the text that Redis gets."""

    name: str
    own: str
    joined: str

    @cached_property
    def plain(self) -> str:
        """The joined text with its `#!lua` line turned into a comment, as Redis does before compiling."""
        return re.sub(r"\A#!", "--", self.joined)

    @cached_property
    def walk(self) -> Walk:
        """What the joined text does."""
        return Walk(self.plain)

    @cached_property
    def header(self) -> list[str]:
        """The comment block at the top of the file, without a `#!lua` line."""
        lines = self.own.splitlines()
        lines = lines[1:] if lines and lines[0].startswith("#!") else lines
        end = next((at for at, line in enumerate(lines) if not re.match(r"--(?!-)", line)), len(lines))
        return lines[:end]


def compiles(source: Source) -> Iterator[str]:
    """The joined script is Lua 5.1."""
    try:
        lua51.LuaRuntime().compile(source.plain)
    except lua51.LuaSyntaxError as error:
        yield f"does not compile as Lua 5.1: {error}"


def no_globals(source: Source) -> Iterator[str]:
    """No global is written, and none is read that Redis does not give."""
    for line, name in source.walk.global_writes:
        yield f"{line}: global {name} is written"
    for line, name in source.walk.global_reads:
        if name not in GLOBALS:
            yield f"{line}: global {name} is not allowed"


def no_unused(source: Source) -> Iterator[str]:
    """Every local is read."""
    for local in source.walk.unused:
        yield f"{local.line}: local {local.name} is never read"


def header_is_whole(source: Source) -> Iterator[str]:
    """The header states a purpose, the reply, and nothing that cannot be read."""
    own = source.own.splitlines()
    if own and own[0].startswith("#!") and not re.fullmatch(r"#!lua( flags=[a-z,-]+)?", own[0]):
        yield f"1: not a `#!lua` or `#!lua flags=...` line: {own[0]}"
    if not source.header or re.match(r"-- (KEYS\[|ARGV\[|Reply:)", source.header[0]):
        yield "the header does not begin with the purpose"
    if not any(line.startswith("-- Reply: ") for line in source.header):
        yield "the header has no `-- Reply:` line"
    for line in source.header:
        if re.match(r"-- (KEYS|ARGV)\[", line) and not DOCUMENTED.match(line):
            yield f"the header's line is not `-- KEYS[n] name: meaning`: {line}"


def header_is_true(source: Source) -> Iterator[str]:
    """The header lists exactly the KEYS and ARGV that the script uses."""
    documented = [found.groups() for line in source.header if (found := DOCUMENTED.match(line))]
    for table in ("KEYS", "ARGV"):
        names = {int(index): name for kind, index, more, name in documented if kind == table and not more}
        start = min((int(index) for kind, index, more, _ in documented if kind == table and more), default=None)
        uses = [use for use in source.walk.uses if use.table == table]
        fixed = [use for use in uses if use.index and (start is None or use.index < start)]
        computed = [use for use in uses if use not in fixed]
        for index in sorted({use.index for use in fixed if use.index} - set(names)):
            yield f"{table}[{index}] is used but not in the header"
        for index in sorted(set(names) - {use.index for use in fixed}):
            yield f"{table}[{index}] is in the header but not used"
        if start and not computed:
            yield f"{table}[{start}..] is in the header but not used"
        if start is None:
            yield from (f"{use.line}: {table} by a computed index, without a range in the header" for use in computed)
        if table == "KEYS":
            yield from _bindings(fixed, names)


def _bindings(fixed: list[Any], names: dict[int, str]) -> Iterator[str]:
    for use in fixed:
        if use.bound is None:
            yield f"{use.line}: KEYS[{use.index}] in the body; bind it to a local at the top"
        elif use.bound != names.get(use.index, use.bound):
            yield f"{use.line}: KEYS[{use.index}] is {names[use.index]} in the header and {use.bound} in the code"


def no_built_keys(source: Source) -> Iterator[str]:
    """No key is built in Lua: only declared keys are safe while a slot moves."""
    yield from (f"{line}: redis.call is passed on; call it by its name" for line in source.walk.aliases)
    bound = {use.bound for use in source.walk.uses}
    for call in source.walk.calls:
        if call.command is None:
            yield f"{call.line}: the command of redis.call is not a literal"
        elif (key := _key(call)) and not isinstance(key, lua.Name | lua.Index):
            yield f"{call.line}: the key of {call.command} is neither a local nor a table element"
        elif (name := context_field(key)) and name not in bound:
            yield f"{call.line}: the key of {call.command}, q.{name}, is not one of KEYS"
        elif isinstance(key, lua.Name) and _is_text(key, call.scope, set()):
            yield f"{call.line}: the key of {call.command}, {key.id}, is built from text"


def _key(call: RedisCall) -> Any:
    command, rest = call.command or "", call.args[1:]
    if command in KEY_AFTER_STREAMS:
        rest = rest[next((at + 1 for at, arg in enumerate(rest) if text_of(arg) == "STREAMS"), len(rest)) :]
    elif command in KEY_SECOND:
        rest = rest[1:]
    return None if command in KEYLESS or not rest else rest[0]


def _is_text(node: Any, scope: Scope, seen: set[int]) -> bool:
    """May *node* hold a string that this script made?"""
    if isinstance(node, lua.AndLoOp | lua.OrLoOp):
        return _is_text(node.left, scope, seen) or _is_text(node.right, scope, seen)
    if isinstance(node, lua.Name):
        local = scope.find(node.id)
        if local is None or id(local) in seen:
            return False
        return any(_is_text(value, where, seen | {id(local)}) for value, where in local.values)
    if isinstance(node, lua.Call):
        library = getattr(getattr(node.func, "value", None), "id", None)
        return library in {"string", "table"} or getattr(node.func, "id", None) == "tostring"
    return isinstance(node, lua.Concat | lua.String | lua.Invoke)


def one_time(source: Source) -> Iterator[str]:
    """TIME is called at most once: a script has one now."""
    times = [call for call in source.walk.calls if call.command == "TIME"]
    yield from (f"{call.line}: TIME is called again" for call in times[1:])
    yield from (f"{call.line}: TIME is called in a loop" for call in times[:1] if call.in_loop)


def no_wide_unpack(source: Source) -> Iterator[str]:
    """Lua's stack ends at 8,000 values: never unpack all that a caller sent."""
    yield from (f"{line}: unpack({table}) fails at 8,000 values" for line, table in source.walk.unpacks)


def context_is_whole(source: Source) -> Iterator[str]:
    """The fields of `q` are those that are read."""
    yield from lua_modules.check_context(source.walk, Walk(re.sub(r"\A#!", "--", source.own)))


def short_functions(source: Source) -> Iterator[str]:
    """The functions of a verb are as short as those of modules."""
    yield from lua_modules.long_functions(source.walk)


RULES = (
    no_globals,
    no_unused,
    header_is_whole,
    header_is_true,
    no_built_keys,
    one_time,
    no_wide_unpack,
    context_is_whole,
    short_functions,
)


def check(source: Source) -> list[str]:
    """Everything that is wrong with one verb; line numbers are those of the joined text."""
    broken = list(compiles(source))
    return broken or [problem for rule in RULES for problem in rule(source)]


def unbounded(text: str) -> Iterator[str]:
    """Every `unpack` says of how many values at most, below what Lua's stack holds, or `act_in_parts` bounds it."""
    for number, line in enumerate(text.splitlines(), 1):
        code, _, comment = line.partition("--")
        if "unpack(" not in code or PART.search(code):
            continue
        stated = STATED.match(comment)
        if stated is None:
            yield f"{number}: unpack without a bound: `-- at most 500: why`, or act_in_parts"
        elif int(stated[1].replace(",", "")) > MOST_VALUES:
            yield f"{number}: unpack of more than {MOST_VALUES:,} values"


def too_wide(text: str) -> Iterator[str]:
    """A line of the new engine fits into a window."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDEST:
            yield f"{number}: the line has {len(line)} letters, more than {WIDEST}"


def check_files(folder: Path) -> list[str]:
    """What is wrong with the files: an unbounded `unpack`, a wide line, a `@use` of nothing, and what modules break."""
    problems = []
    for path in sorted(folder.rglob("*.lua")):
        name, text = path.relative_to(folder).with_suffix("").as_posix(), path.read_text()
        problems += [f"{name}: {problem}" for problem in unbounded(text)]
        if name.startswith("engine/"):
            problems += [f"{name}: {problem}" for problem in too_wide(text)]
        if "/" not in name:
            problems += [f"{name}: {problem}" for problem in lua_modules.check_uses(text, folder)]
    return problems + lua_modules.check_modules(folder)


def luacheck(source: Source) -> list[str]:
    """What the real luacheck says, nothing where it is not on PATH."""
    tool = shutil.which("luacheck")
    if tool is None:
        return []
    # 43x: a shared function's parameter may have the name of a local of the verb that uses it
    options = ["--no-config", "--no-color", "--no-max-line-length", "--codes", "--formatter", "plain", "--ignore", "43"]
    told = subprocess.run(
        [tool, "-", *options, "--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV", "--filename", source.name],
        input=source.plain, capture_output=True, text=True,
    )  # fmt: skip
    return [line.removeprefix(f"{source.name}:") for line in (told.stdout + told.stderr).splitlines()]


def load() -> list[Source]:
    """Every verb of lua/, joined the way that shardq itself joins it."""
    from shardq.protocol import scripts

    return [
        Source(name, (ROOT / "lua" / f"{name}.lua").read_text(), scripts.load(name).source)
        for name in sorted(scripts.names())
    ]


def main() -> int:
    """Check lua/; the exit status says whether anything is wrong."""
    problems, sources = check_files(ROOT / "lua"), load()
    for source in sources:
        problems += [f"{source.name} (joined):{problem}" for problem in check(source) + luacheck(source)]
    for problem in problems:
        print(problem, file=sys.stderr)
    checked_by = "the house's rules" + (" and luacheck" if shutil.which("luacheck") else ", luacheck is not on PATH")
    print(f"lua: {len(sources)} scripts, {checked_by}: {len(problems) or 'no'} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
