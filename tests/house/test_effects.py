"""An error speaks for one effect: no `except` of an operation covers two, of which the first may have happened."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.doc_blocks import ROOT

LISTED = {
    # name of the function: why its `except` may cover several steps
    "_answered_call": "it makes one of two calls, and of the one with an ack it takes both outcomes apart",
    "_noting": "StopIteration is the end of the operation that it performs",
    "go_on": "StopIteration is the end of the operation that it performs",
    "told_as": "StopIteration is the end of the operation that it passes on",
    "_turns": "StopIteration is the end of the operation that it performs",
    "_steps": "an error goes to the callers of this call alone, and what they share has one effect at a time",
}


def steps(body: list[ast.stmt]) -> int:
    """How many steps these statements may make, one after the other: in a loop at least two."""
    return sum(_steps(each) for each in body)


def _steps(node: ast.AST) -> int:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return 0
    if isinstance(node, ast.If):
        return _steps(node.test) + max(steps(node.body), steps(node.orelse))
    inner = sum(_steps(each) for each in ast.iter_child_nodes(node))
    if isinstance(node, (ast.For, ast.While)):
        return 2 * inner
    return inner + isinstance(node, (ast.Yield, ast.YieldFrom))


def suspects(source: str) -> Iterator[str]:
    """The functions in which an `except` covers several steps."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            tries = [each for each in ast.walk(function) if isinstance(each, ast.Try) and each.handlers]
            if any(steps(each.body) > 1 for each in tries):
                yield function.name


def test_only_in_those_that_are_listed_an_except_covers_two_effects() -> None:
    found = {(name, path) for path in ROOT.glob("shardq/**/*.py") for name in suspects(path.read_text())}
    assert {(name, str(path)) for name, path in found if name not in LISTED} == set()
    assert {name for name, _ in found} == LISTED.keys()


def test_this_check_can_fail() -> None:
    two = "def op():\n try:\n  yield 1\n  yield 2\n except E: pass"
    loop = "def op():\n try:\n  for each in many:\n   yield each\n except E: pass"
    one = "def op():\n try:\n  if a: yield 1\n  else: yield 2\n except E: pass\n yield 3"
    assert [[*suspects(each)] for each in (two, loop, one)] == [["op"], ["op"], []]
