"""A page as its names are looked for: its sections, spans, blocks and prose, and the names that it defines itself."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from tests.house.doc_blocks import ROOT, Block, blocks, documents
from tests.house.names.commands import every_parser, typed

SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FENCED = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{2,} ", re.MULTILINE)
NO_NAME = re.compile(r"\]\([^)\s]*\)|<!--.*?-->", re.DOTALL)  # where a link leads, and a mark
FIRST_CELL = re.compile(r"^\|(?:[^|\\]|\\.)*\|", re.MULTILINE)
MODULE = re.compile(r"\bshardq(?:\.[a-z_]+)+\b")
MADE = re.compile(r"(?:#|//) ([\w./-]+)\n")
EXAMPLE = re.compile(r"  .*\bshardq ")
INNER = {"CONTRIBUTING.md", "docs/internals/design.md", "docs/internals/lua.md", "docs/internals/words.md"}
"""For those who work on shardq: they name what users neither import nor get from a call."""


@dataclass(frozen=True)
class Section:
    """What stands under one heading of a page: its text without blocks, and its blocks."""

    text: str
    blocks: tuple[Block, ...]

    @cached_property
    def spans(self) -> list[str]:
        """What stands in backticks, each on one line."""
        return [" ".join(span.split()).replace("\\|", "|") for span in SPAN.findall(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without what stands in backticks, and without addresses."""
        return NO_NAME.sub("", SPAN.sub("``", self.text))


@dataclass(frozen=True)
class Page:
    """A page by its name. That about another library has that one's names in the first column of its tables."""

    name: str
    sections: tuple[Section, ...]

    @property
    def is_inner(self) -> bool:
        """Whether it is for those who work on shardq."""
        return self.name in INNER

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of all sections."""
        return [block for section in self.sections for block in section.blocks]

    @cached_property
    def modules(self) -> set[str]:
        """From where its reader imports: `shardq`, and the modules that it names."""
        texts = [*(section.text for section in self.sections), *(block.code for block in self.blocks)]
        return {"shardq", *(name for text in texts for name in MODULE.findall(text))}

    @cached_property
    def files(self) -> set[str]:
        """The files that its reader makes: a block begins with the path of its own."""
        return {found[1] for block in self.blocks if (found := MADE.match(block.code))}

    @cached_property
    def own(self) -> set[str]:
        """The names of its own examples: in Python, in settings, of files."""
        spans = [span for section in self.sections for span in section.spans if span.startswith("shardq ")]
        code = [*(block.code for block in self.blocks), *spans]
        return {name for text in code for name in (*re.findall(r"\w+", text), *re.findall(r"[\w./*#-]+", text))}


def page_of(path: Path, name: str = "") -> Page:
    """The page in the file at *path*; its *name* is the path from the root."""
    name = name or path.relative_to(ROOT).as_posix()
    lines = path.read_text()
    starts = [0, *(found.start() for found in HEADING.finditer(lines)), len(lines)]
    every = list(blocks(path))
    sections = []
    for start, end in pairwise(starts):
        first, last = lines.count("\n", 0, start) + 1, lines.count("\n", 0, end) + 1
        text = FENCED.sub("", lines[start:end])
        own = tuple(block for block in every if first <= block.line < last)
        sections.append(Section(FIRST_CELL.sub("|", text) if "coming_from/" in name else text, own))
    return Page(name, tuple(sections))


def pages() -> Iterator[Page]:
    """README.md, CONTRIBUTING.md and all of docs/, and the help of each command."""
    for path in (*documents(), ROOT / "CONTRIBUTING.md"):
        yield page_of(path)
    for parser in every_parser(typed()):
        yield help_of(parser)


def help_of(parser: ArgumentParser) -> Page:
    """What `--help` of a command says. Its examples are lines of a shell."""
    helps = (action.help for action in parser._actions)
    texts = [f"`{parser.prog}`", parser.description, parser.epilog, *helps]
    lines = "\n\n".join(text for text in texts if text).splitlines()
    examples = "\n".join(line.strip() for line in lines if EXAMPLE.match(line))
    prose = "\n".join(line for line in lines if not EXAMPLE.match(line))
    name = f"{parser.prog} --help"
    return Page(name, (Section(prose, (Block(name, 0, "bash", examples, None),)),))
