"""Which options a section may name: those of the commands that it names, in a line of a shell or in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.__main__ import parser as benchmarks_parser
from tests.house.names import commands
from tests.house.names.pages import Section
from tests.surface import subparsers

CALL = re.compile(r"\bshardq ([a-z][\w -]*)")
BEFORE_OPTION = re.compile(r"\b([a-z][\w-]*) --?[a-z]")


def options_of(*sections: Section) -> set[str]:
    """The options of all commands that these sections name."""
    found: set[str] = set()
    for line in (line for section in sections for line in _lines(section)):
        for words in CALL.findall(line):
            command = commands.command_of(words.split())
            found |= commands.options_of(command) if command is not commands.typed() else set()
        if "python -m benchmarks" in line:
            found |= commands.options_of(benchmarks_parser())
        if "shardq_worker" in line:
            found |= commands.options_for_django()
    return found


def _lines(section: Section) -> Iterator[str]:
    """The lines that may name a command; one that a section names by itself, as `stats`, as `shardq stats`."""
    names = subparsers(commands.typed())
    yield from (f"shardq {span}" if span in names else span for span in section.spans)
    for line in section.prose.splitlines():
        yield from (line, *(f"shardq {name}" for name in BEFORE_OPTION.findall(line)))
    for block in section.blocks:
        yield from block.code.replace("\\\n", " ").splitlines()
