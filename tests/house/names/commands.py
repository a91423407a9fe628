"""What a line of a shell names: commands and options of `shardq`, benchmarks, targets of make, modules, extras."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence, Set
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO

from benchmarks.__main__ import NAMES as BENCHMARKS
from benchmarks.__main__ import parser as benchmarks_parser
from shardq.cli.program import parser as shardq_parser
from shardq.model import Limits, QueueConfig
from tests.house.doc_blocks import ROOT
from tests.surface import subparsers

Parser = argparse.ArgumentParser
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = {*re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MANAGE = ROOT / "shardq/django/management/commands/shardq_worker.py"
SET = re.compile(r"\w+=.*")
PLACEHOLDER = re.compile(r"[A-Z]+|…")
SETTABLE = {"configure": {*QueueConfig.__struct_fields__}, "limits": {*Limits.__struct_fields__, "weight"}}
"""What these commands take as NAME=VALUE."""


def every_parser(parser: Parser) -> Iterator[Parser]:
    """*parser*, and those of its commands, at each depth."""
    yield parser
    for each in subparsers(parser).values():
        yield from every_parser(each)


@cache
def typed() -> Parser:
    """The parser of `shardq`."""
    return shardq_parser()


@cache
def told() -> Parser:
    """The same for prose, which leaves arguments out, and has any text as a value."""
    made = shardq_parser()
    for parser in every_parser(made):
        for group in parser._mutually_exclusive_groups:
            group.required = False
        for action in parser._actions:
            action.required = False
            if not isinstance(action, argparse._SubParsersAction):
                action.type = action.choices = None
                action.nargs = {None: "?", "+": "*"}.get(action.nargs, action.nargs)  # type: ignore[arg-type]
    return made


def command_of(words: Sequence[str]) -> Parser:
    """The parser of the command that `shardq` calls with these *words*."""
    found = typed()
    for word in words:
        found = subparsers(found).get(word, found)
    return found


def options_of(parser: Parser) -> set[str]:
    """The options of a command, and of those that it has."""
    return {option for each in every_parser(parser) for action in each._actions for option in action.option_strings}


@cache
def options_for_django() -> set[str]:
    """Those of `manage.py shardq_worker`."""
    return {*re.findall(r'"(--?[\w-]+)"', MANAGE.read_text())}


def complaints(line: str, own: Set[str], *, is_typed: bool) -> Iterator[str]:
    """What a line names that is not there. One that is not *is_typed* stands in prose, and may be a part of a line.

    *own* are the names of the page itself, such as those of its files.
    """
    for words in _commands(line):
        match words:
            case ["shardq", *rest]:
                yield from _of_shardq(rest, is_typed=is_typed)
            case ["make", *rest]:
                yield from _of_make(rest)
            case ["python" | "python3", "-m", module, *rest]:
                yield from _of_module(module, rest, own)
            case ["pip", *rest]:
                yield from (f"shardq has no extra {name}" for name in _extras(rest) if name not in EXTRAS)


def _commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, each as its words, without what is set before it and where its output goes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    goes_to = False
    for word in lexer:
        if word[0] in "|&;()":
            yield words
            words = []
        elif word[0] in "<>":
            goes_to = True
        elif goes_to:
            goes_to = False
        elif words or not SET.fullmatch(word):
            words.append(word.removeprefix(".venv/bin/") if not words else word)
    yield words


def _of_shardq(words: Sequence[str], *, is_typed: bool) -> Iterator[str]:
    if not is_typed:
        words = [word for word in words if not PLACEHOLDER.fullmatch(word)]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words:
        return
    if complaint := _parsed(typed() if is_typed else told(), words):
        yield complaint
    for name in (word.partition("=")[0] for word in words[1:] if re.match(r"[a-z_]+=", word)):
        if words[0] in SETTABLE and name not in SETTABLE[words[0]]:
            yield f"shardq {words[0]} sets no {name}"


def _of_make(words: Sequence[str]) -> Iterator[str]:
    for name, is_set, _ in (word.partition("=") for word in words):
        if not (re.search(rf"\b{name}\b", MAKEFILE) if is_set else name in TARGETS):
            yield f"make has no {name}"


def _of_module(module: str, words: Sequence[str], own: Set[str]) -> Iterator[str]:
    if module == "benchmarks":
        if complaint := _parsed(benchmarks_parser(), words):
            yield complaint
            return
        named = benchmarks_parser().parse_args(words).names
        yield from (f"no benchmark is called {name}" for name in named if name not in BENCHMARKS)
    elif module not in ("venv", "pytest", "pip"):
        path = module.replace(".", "/")
        if not {f"{path}.py", path} & own and not any((ROOT / f"{path}{end}").exists() for end in (".py", "")):
            yield f"there is no module {module}"


def _extras(words: Sequence[str]) -> Iterator[str]:
    for found in re.findall(r"(?:shardq|\.)\[([\w,]+)\]", " ".join(words)):
        yield from found.split(",")


def _parsed(parser: Parser, words: Sequence[str]) -> str:
    """What *parser* says of these words; nothing if it takes them."""
    said = StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(StringIO()):
            parser.parse_args(words)
    except SystemExit as ended:
        return said.getvalue().strip().rpartition("\n")[2] if ended.code else ""
    return ""
