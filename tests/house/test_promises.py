"""docs/internals/design.md names a test for each promise: it is there, and `make test` runs it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_paths import section

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\d+)\. [^|]+ \| (.+) \|$", re.MULTILINE)
PROMISES = 12


def promised() -> dict[int, list[str]]:
    """The tests that the page names, by promise."""
    page = section((ROOT / "docs/internals/design.md").read_text(), "## What shows each promise")
    return {int(number): re.findall(r"`([^`]+)`", tests) for number, tests in ROW.findall(page)}


@cache
def marks(path: str) -> dict[str, list[str]]:
    """The commands that run each test of a file, as its marks say; those without a mark run in all."""
    tree = ast.parse((ROOT / path).read_text())
    file = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: _commands([*node.decorator_list, *file]) for node in functions}


def _commands(nodes: list[ast.expr]) -> list[str]:
    for node in (each for tree in nodes for each in ast.walk(tree)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.runs_in":
            return [str(ast.literal_eval(each)) for each in node.args]
    return ["test", "test-all"]


def test_each_promise_has_its_tests() -> None:
    assert [*promised()] == [*range(1, PROMISES + 1)]
    assert all(promised().values())


@pytest.mark.parametrize("number", range(1, PROMISES + 1))
def test_make_test_runs_them(number: int) -> None:
    for name in promised()[number]:
        path, _, function = name.partition("::")
        assert "test" in marks(path)[function], name
