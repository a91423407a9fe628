"""Finds the names that a page shows, and says which of them are not there."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
from collections.abc import Callable, Iterator
from functools import cache

from tests.house import test_repo
from tests.house.doc_blocks import ROOT, Block
from tests.house.names import commands, others
from tests.house.names.code import Code, parsed
from tests.house.names.definitions import definitions, lua_code
from tests.house.names.options import options_of
from tests.house.names.pages import Page, Section
from tests.house.names.server import redis_names
from tests.surface import subparsers

Wrong = Iterator[tuple[str, str]]
"""Names that are not there, each with what is wrong."""

VARIABLE = re.compile(r"\bSHARDQ_[A-Z_]+\b")
CLASS = re.compile(r"\b(?![KMG]iB\b)[A-Z][a-z0-9]+(?:[A-Z]\w*)+\b")
WORD = re.compile(r"(?<![\w./-])(?:[a-z]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z]+)+)\b(?![./]\w)")
DOTTED = re.compile(r"(?<![\w./-])shardq(?:\.[a-zA-Z_]\w*)+")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*\b")
WITH_OPTION = re.compile(r"\bshardq [a-z][\w-]*(?: [a-z][\w-]*)? --[a-z][\w-]*")
PROJECT = {"benchmarks", "docs", "examples", "lua", "shardq", "tests"}
SHELL = {"console", "bash", "sh"}
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(sorted(PROJECT))})/[\w./-]*\w")
DATA = re.compile(
    r"(?:[^a-zA-Z]|[a-zA-Z](?!\w))*"  # no word
    r"|\d.*|[0-9a-f]{16,}|(?:[0-9a-f]{2} ?)+|\\.*|<.*|[A-Z]+/.*"  # numbers, bytes, and what stands for something
    r"|[a-z]+-\d+(?:/.*)?"  # tenants
)
FILLED_IN = re.compile(r"…|\.\.\.|\w+=\S+|\d+")
"""What stands in a message where the code fills something in."""


class Judge:
    """Of one page. `met` are the names that others define."""

    def __init__(self, page: Page) -> None:
        self.page, self.met = page, set[str]()
        self._code, self._known = Code(page), definitions()
        names = "|".join(subparsers(commands.typed()))
        rules: dict[str, Callable[[str, Section], Wrong]] = {
            r"(?:.*[|;&] *)?(?:[A-Z_]+=\S+ )?(?:shardq|make|pip|\S*python3?)(?: .*)?": self._line,
            rf"(?:{names}) --?[a-z].*": self._line_of_shardq,
            r"--?[a-zA-Z].*": self._option,
            r"SHARDQ_.*": self._variables,
            r"tests/.*::\w+": self._test,
            r"(?:shardq|…)?(?::\{name\})?:[\w*…-]+": self._key,
            r"[\w.]+:\w+(?:\.\w+)?": self._handler,
            r"[\w*./-]*/[\w./-]*|[\w.-]+\.(?:py|lua|json|md|toml|txt|proto|js)": self._file,
            r"\.\w+": self._member,
        }
        self._rules = [(re.compile(pattern), rule) for pattern, rule in rules.items()]

    def wrong(self) -> Iterator[str]:
        """What is wrong in the page, a line each."""
        for section in self.page.sections:
            for span in section.spans:
                yield from self._ours(f"`{span}`", span, self._span(span, section))
            for block in section.blocks:
                yield from self._ours(f"line {block.line}", "", self._block(block, section))
            yield from self._ours("in the text", "", self._prose(section))

    def _ours(self, where: str, text: str, wrong: Wrong) -> Iterator[str]:
        """Those of *wrong* that are no names of others; nor is *text* as a whole."""
        for name, complaint in list(wrong):
            if entry := others.entry(text) or others.entry(name):
                self.met.add(entry)
            elif not _is_of_redis(text) and name not in redis_names():
                yield f"{self.page.name}, {where}: {complaint}"

    def _span(self, text: str, section: Section) -> Wrong:
        if _is_no_name(text):
            return
        text = re.sub(r'\."[^"]*"', "", text)  # an example in a name of TOML
        for pattern, rule in self._rules:
            if pattern.fullmatch(text):
                yield from rule(text, section)
                return
        if not text.isidentifier() and text in self._known.constants | self.page.own:
            return
        if (tree := parsed(text)) is not None:
            yield from self._code.unknown(tree)
        else:
            yield from self._message(text)

    def _block(self, block: Block, section: Section) -> Wrong:
        yield from self._variables(block.code, section)
        for name in FILE.findall(block.code):
            yield from self._file(name, section)
        if block.language in SHELL:
            for line in block.code.replace("\\\n", " ").splitlines():
                if block.language != "console" or line.startswith("$ "):
                    typed = line.removeprefix("$ ")
                    found = commands.complaints(typed, self.page.own, is_typed=True)
                    yield from ((typed, f"{typed}: {each}") for each in found)
        elif block.language == "python":
            yield from self._code.unknown_imports(ast.parse(block.code))

    def _prose(self, section: Section) -> Wrong:
        text = section.prose
        for pattern, is_there in (
            (CLASS, self._code.is_class),
            (WORD, self._code.is_word),
            (DOTTED, self._code.is_there),
        ):
            yield from ((name, f"there is no {name}") for name in pattern.findall(text) if not is_there(name))
        for pattern, rule in ((WITH_OPTION, self._line), (OPTION, self._option), (FILE, self._file)):
            for name in pattern.findall(text):
                yield from rule(name, section)
        yield from self._variables(text, section)

    def _line(self, text: str, section: Section) -> Wrong:
        yield from ((text, each) for each in commands.complaints(text, self.page.own, is_typed=False))

    def _line_of_shardq(self, text: str, section: Section) -> Wrong:
        yield from self._line(f"shardq {text}", section)

    def _option(self, text: str, section: Section) -> Wrong:
        known = options_of(section) or options_of(*self.page.sections)
        for name in OPTION.findall(text)[:1]:
            if name not in known:
                yield name, f"no command that is named there has {name}"

    def _variables(self, text: str, section: Section) -> Wrong:
        yield from ((name, f"nothing reads {name}") for name in VARIABLE.findall(text) if name not in variables())

    def _test(self, text: str, section: Section) -> Wrong:
        path, _, name = text.partition("::")
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text():
            yield text, "there is no such test"

    def _key(self, text: str, section: Section) -> Wrong:
        name = text.rpartition(":")[2].rstrip("*…-")
        if name and name.replace("-", "_") not in self._known.constants:
            yield text, f"no key ends in :{name}"

    def _handler(self, text: str, section: Section) -> Wrong:
        module, _, name = text.partition(":")
        if module.startswith("shardq") and not self._code.is_there(f"{module}.{name.partition('.')[0]}"):
            yield text, f"{module} has no {name}"

    def _file(self, text: str, section: Section) -> Wrong:
        path = text.rstrip("/*")
        first = path.partition("/")[0]
        is_of_the_page = text in self.page.files or (first not in PROJECT and {text, f"{first}/"} & self.page.own)
        is_there = "/" in text and any((folder / path).exists() for folder in (ROOT, ROOT / "shardq"))
        if not (is_of_the_page or is_there or path in file_names()):
            yield text, f"there is no file {text}"

    def _member(self, text: str, section: Section) -> Wrong:
        if not self._code.is_word(text[1:]) and not self._code.is_word(text):
            yield text, f"nothing has {text}"

    def _message(self, text: str) -> Wrong:
        """A line of the log, or an error: its parts are in the code."""
        if self.page.is_inner and text in lua_code():
            return
        for part in (each.strip(" :,()[]") for each in FILLED_IN.split(text)):
            if part not in vars(builtins) and not any(part in each for each in self._known.texts):
                yield text, f"nothing says {part!r}"


def _is_no_name(text: str) -> bool:
    """Whether *text* is an example of data, or words of Python."""
    if DATA.fullmatch(text) or all(map(keyword.iskeyword, text.split())):
        return True
    try:
        return isinstance(json.loads(text), list | dict | str)
    except ValueError:
        return False


def _is_of_redis(text: str) -> bool:
    """Whether *text* begins with a name of Redis, or is a right to one: `+client|setinfo`."""
    first = text.partition(" ")[0]
    return first in redis_names() or (first[:1] == "+" and first[1:].partition("|")[0].upper() in redis_names())


@cache
def variables() -> frozenset[str]:
    """The environment variables that anything of the project reads."""
    texts = (path.read_text() for path in test_repo.files() if path.suffix == ".py" and path.parts[-2] != "house")
    return frozenset(name for text in texts for name in VARIABLE.findall(text))


@cache
def file_names() -> frozenset[str]:
    """The names of all files, without their folders."""
    return frozenset(path.name for path in test_repo.files())
