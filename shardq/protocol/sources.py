"""The sources of the library: the modules of lua/, which become one text.

`order.txt` names the modules, one a line. The first one, `base`, has what all others use: its locals are theirs, and a
local in capitals is the place of a key among those of a queue. Every other module keeps its locals to itself, and has a
table of its name for what others use of it: `Turns` for `turns.lua`. (Lua has at most 200 locals in one text.)
A verb is a function of KEYS and ARGV. Its header stands directly above it, and `KEYS[1..18]` are the first of a queue:

    -- @verb read | allow-oom: deliver up to `count` messages
    -- KEYS[1] meta: the queue's state
    -- ARGV[1] count: messages at most
    function verbs.read(KEYS, ARGV)

Whole-line comments, blank lines and constants (constants.py) are not sent. A wheel has the library and not the
sources: lua/hatch_build.py makes it.
"""

from __future__ import annotations

import hashlib
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shardq.model.settings import kinds
from shardq.protocol import constants, records
from shardq.protocol.keys import QueueKeys
from shardq.protocol.library import PREFIX, Library, LibraryVerb
from shardq.protocol.script import ScriptLine

MARK: Final = "'@"
_MARKS: Final = {
    "'@settings'": ", ".join(f"'{name}'" for name in kinds()),
    "'@kinds_of_settings'": ", ".join(
        [*(f"{name} = {kind}" for name, kind in kinds().items()), "accounts = {'^1$', 1}"]
    ),
    "'@keys'": ", ".join(f"'{suffix}'" for suffix in QueueKeys.suffixes.values()),
}
"""In Lua these stand in place of the marks, so that a setting and a key are named in one place only."""

_DIGITS: Final = 12
_FLAGS: Final = frozenset({"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"})
_VERB = re.compile(r"-- @verb (\w+)(?: \| ([a-z-]+(?:, [a-z-]+)*))?: \S.*")
_HEAD = re.compile(r"function verbs\.(\w+)\(KEYS(?:, ARGV)?\)")
_KEYS_LINE = re.compile(r"-- KEYS\[1\.\.(\d+)\]: ")
_PLACE = re.compile(r"local ([A-Z_]+) = (\d+)")
BASE: Final = "base"
_KEY = re.compile(r"-- KEYS\[(\d+)(\.\.)?\] (\w+): ")


def read(folder: Path) -> Library:
    """Return the library whose modules are in *folder*. FileNotFoundError or ValueError if it is not well-formed."""
    body: list[ScriptLine] = []
    verbs: dict[str, LibraryVerb] = {}
    keys: list[str] = []
    known: records.Records = {}
    shared: dict[str, str] = {}
    for module in _order(folder):
        lines = folder.joinpath(f"{module}.lua").read_text(encoding="utf-8").splitlines()
        if module == BASE:
            keys = [found[1].lower() for line in lines if (found := _PLACE.fullmatch(line))]
            known = records.read(lines)
            shared |= (directs := constants.directs(lines))
            body += _sent(module, lines, known, shared, shared)
            body += [ScriptLine("", f"local {name}") for name in directs.values()]
        else:
            own = "".join(part.capitalize() for part in module.split("_"))
            body += [
                ScriptLine("", f"local {own} = {{}}"),
                ScriptLine("", "do"),
                *_sent(module, lines, known, ChainMap({}, shared), shared),
                ScriptLine("", "end"),
            ]
        for verb in _verbs(module, lines, keys):
            if verb.name in verbs:
                raise ValueError(f"{module}.lua: there is a verb {verb.name} already")
            verbs[verb.name] = verb
    seen = "\n".join([*[line.text for line in body], *[_registration("", verb) for verb in verbs.values()]])
    name = PREFIX + hashlib.sha256(seen.encode()).hexdigest()[:_DIGITS]
    last = [ScriptLine("", _registration(f"{name}_", verb)) for verb in verbs.values()]
    sent = [ScriptLine("", f"#!lua name={name}"), *body, *last]
    return Library(name, "".join([f"{line.text}\n" for line in sent]), verbs, tuple([line.place for line in sent]))


def _order(folder: Path) -> list[str]:
    """Return the names of the modules in their order."""
    lines = folder.joinpath("order.txt").read_text(encoding="utf-8").splitlines()
    named = [name for line in lines if (name := line.partition("#")[0].strip())]
    there = {item.name.removesuffix(".lua") for item in folder.iterdir() if item.name.endswith(".lua")}
    if there != set(named) or len(named) != len(there):
        odd = sorted(there ^ set(named)) or sorted({name for name in named if named.count(name) > 1})
        raise ValueError(f"order.txt must name each module once, but not so: {', '.join(odd)}")
    return named


def _sent(
    module: str, lines: Sequence[str], known: records.Records, own: constants.Values, shared: constants.Values
) -> Iterator[ScriptLine]:
    """Yield the lines of a module that are sent: all but blank ones, and those that are only a comment or a constant.

    A record that is made over several lines is one, with the number of the first.
    """
    begun, first = "", 0
    for number, written in enumerate(lines, 1):
        line = written
        for mark, text in _MARKS.items():
            line = line.replace(mark, text)
        if "--[" in line or ("[[" in line and "]]" not in line):
            raise ValueError(f"{module}.lua:{number}: no comment or text may go over several lines")
        code = records.without_comment(line)
        if not code:
            continue
        text, first = (f"{begun} {code.strip()}", first) if begun else (line.rstrip(), number)
        if records.is_open(text):
            begun = text if begun else code
            continue
        try:
            text = records.numbered(known, records.made(known, text))
        except ValueError as error:
            raise ValueError(f"{module}.lua:{first}: {error}") from None
        begun, text = "", constants.replaced(own, text)
        if not constants.note(own, shared, records.without_comment(text)):
            yield ScriptLine(f"{module}.lua:{first}", text)


def _verbs(module: str, lines: Sequence[str], keys: Sequence[str]) -> Iterator[LibraryVerb]:
    """Yield the verbs of a module."""
    header: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("--"):
            header.append(line)
            continue
        if head := _HEAD.match(line):
            try:
                yield _verb(head[1], _spelled_out(header, keys))
            except ValueError as error:
                raise ValueError(f"{module}.lua:{number}: {error}") from None
        elif any(each.startswith("-- @verb") for each in header):
            raise ValueError(f"{module}.lua:{number}: below the header of a verb its function must come")
        header = []


def _spelled_out(header: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the lines of a *header* with a line for each of the first *keys* of a queue."""
    lines = []
    for line in header:
        if first := _KEYS_LINE.match(line):
            lines += [f"-- KEYS[{number}] {name}: of a queue" for number, name in enumerate(keys[: int(first[1])], 1)]
        else:
            lines.append(line)
    return lines


def _verb(name: str, header: Sequence[str]) -> LibraryVerb:
    """Return the verb called *name*. ValueError if its header is not as it must be."""
    first = next((at for at, line in enumerate(header) if line.startswith("-- @verb")), None)
    found = None if first is None else _VERB.fullmatch(header[first])
    if found is None or found[1] != name:
        raise ValueError(f"above {name} must stand: -- @verb {name}: what it does (or {name} | flag, flag: ...)")
    flags = tuple(found[2].split(", ")) if found[2] else ()
    if not _FLAGS.issuperset(flags):
        raise ValueError(f"{name} has a flag that Redis does not know: {', '.join(set(flags) - _FLAGS)}")
    return LibraryVerb(name, flags, *_keys([each for line in header if (each := _KEY.match(line))]))


def _keys(found: Sequence[re.Match[str]]) -> tuple[tuple[str, ...], str]:
    """Return the names of keys, and that of the last one if it stands for many; else ''."""
    if [int(each[1]) for each in found] != [*range(1, len(found) + 1)]:
        raise ValueError("the header must number its keys from 1 on")
    if any(each[2] for each in found[:-1]):
        raise ValueError("only the last of the keys may stand for many")
    if len({each[3] for each in found}) < len(found):
        raise ValueError("two keys have the same name")
    names = tuple(each[3] for each in found)
    return (names[:-1], names[-1]) if found and found[-1][2] else (names, "")


def _registration(prefix: str, verb: LibraryVerb) -> str:
    """Return the line that makes *verb* a function that clients can call."""
    flags = ", ".join(f"'{flag}'" for flag in verb.flags)
    called = f"function_name = '{prefix}{verb.name}', callback = verbs.{verb.name}, flags = {{{flags}}}"
    return f"redis.register_function{{{called}}}"
