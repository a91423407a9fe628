"""What the walk in docs/internals/design.md names is there: paths, and each function in the file named before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.doc_blocks import ROOT

HEADING = "## One message through the code"
TOKEN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]+\.(?:py|lua|json|md|toml)")
FUNCTION = re.compile(r"([A-Za-z_][\w.]*)\(\)")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def found(path: str) -> Path | None:
    """The file that a document calls *path*: as seen from the root, or from shardq/."""
    return next((each for each in (ROOT / path, ROOT / "shardq" / path) if each.is_file()), None)


def named_paths(text: str) -> list[str]:
    """The paths in backticks."""
    return [token for token in TOKEN.findall(CODE_BLOCK.sub("", text)) if PATH.fullmatch(token)]


def section(text: str, heading: str) -> str:
    """The part of a page under a heading, up to the next one of that level."""
    return text.split(f"{heading}\n")[1].partition("\n## ")[0]


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Each function in backticks, `name()`, with the path in backticks that was named last before it."""
    path = ""
    for token in TOKEN.findall(text):
        if PATH.fullmatch(token):
            path = token
        elif function := FUNCTION.fullmatch(token):
            yield path, function[1]


@cache
def functions(path: Path) -> frozenset[str]:
    """The functions that a file defines; methods as `Class.method`."""
    text = path.read_text()
    if path.suffix == ".lua":
        return frozenset(re.findall(r"^(?:local )?function ([\w.]+)\(", text, re.MULTILINE))
    body = ast.parse(text).body
    names = {each.name for each in body if isinstance(each, DEFINITIONS)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, DEFINITIONS)}
    return frozenset(names)


def unknown(text: str) -> list[str]:
    """What a walk names that is not there."""
    missing = []
    for path, name in pairs(text):
        file = found(path)
        if file is None or name not in functions(file):
            missing.append(f"{path} {name}()")
    return missing


WALK = section((ROOT / "docs/internals/design.md").read_text(), HEADING)


def test_the_functions_of_the_walk_are_in_the_files_that_it_names() -> None:
    assert unknown(WALK) == []


def test_the_walk_goes_through_every_layer() -> None:
    files = {path for path, _ in pairs(WALK)} | set(named_paths(WALK))
    assert {path.split("/")[0] for path in files} >= {"client", "ops", "protocol", "drivers", "worker"}


def test_the_walk_leads_to_what_happens_in_redis() -> None:
    """docs/internals/lua.md goes through these verbs, with names that tests/house/test_names.py looks up."""
    assert {"lua.md", "lua.md#a-write", "lua.md#a-read", "lua.md#an-ack"} <= set(
        re.findall(r"\((lua\.md[^)]*)\)", WALK)
    )


@pytest.mark.parametrize(
    "text",
    [
        "`ops/write/write.py`: `nothing()`",
        "`ops/no.py`: `write()`",
        "`write()`",
        "`client/queue.py`: `write()`",
        "`lua/streams.lua`, `nothing()`",
    ],
)
def test_that_rule_can_fail(text: str) -> None:
    assert unknown(text)


def test_that_rule_knows_functions_methods_and_lua() -> None:
    text = "`ops/write/write.py`: `write_many()`, `client/queue.py`: `Queue.write()`, `lua/streams.lua`, "
    text += "`Streams.append()`"
    assert len(list(pairs(text))) == 3
    assert unknown(text) == []
