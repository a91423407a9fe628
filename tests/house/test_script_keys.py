"""The keys of a call are those that the header of its script names: no caller lists them by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardq.planner.costs import WRITE_KEYS
from shardq.protocol import scripts
from shardq.protocol.keys import SHARED, QueueKeys, RouterKeys, SharedKeys
from tests.house import lua_lint

ROOT = Path(__file__).resolve().parents[2]
OF_A_ROUTER = {"bind", "bindings", "follow"}
OF_ALL_QUEUES = {"register", "queues"}
SOURCES = {source.name: source for source in lua_lint.load()}


@dataclass(frozen=True)
class Caller:
    """One `Call.on(keys, "script", ..., rest=...)`."""

    where: str
    script: str
    gives_rest: bool


def documented(name: str) -> list[tuple[int, bool, str]]:
    """The lines of a header that name keys: number, whether it stands for any number of keys, name."""
    found = [lua_lint.DOCUMENTED.match(line) for line in SOURCES[name].header]
    return [(int(line[2]), bool(line[3]), line[4]) for line in found if line and line[1] == "KEYS"]


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted((ROOT / "shardq").rglob("*.py")):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text())))


def callers() -> Iterator[Caller]:
    for path, node in nodes():
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("Call"), attr="on"), args=args, keywords=keywords):
                name = ast.literal_eval(args[1])
                rest = any(each.arg == "rest" for each in keywords)
                yield Caller(f"{path.relative_to(ROOT)}:{node.lineno}", name, rest)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_header_numbers_its_keys_from_one_and_only_the_last_stands_for_many(name: str) -> None:
    lines = documented(name)

    assert [number for number, _, _ in lines] == [*range(1, len(lines) + 1)]
    assert not any(many for _, many, _ in lines[:-1])
    assert len({key for _, _, key in lines}) == len(lines)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_call_sends_the_keys_that_the_header_names(name: str) -> None:
    script, lines = scripts.load(name), documented(name)
    keys: QueueKeys | RouterKeys | SharedKeys
    if name in OF_ALL_QUEUES:
        keys, prefix = SHARED, "shardq:"
    elif name in OF_A_ROUTER:
        keys, prefix = RouterKeys("q"), "shardq:{q}:router-"
    else:
        keys, prefix = QueueKeys("q"), "shardq:{q}:"

    assert [*script.keys] == [key for _, many, key in lines if not many]
    assert [script.rest] == ([key for _, many, key in lines if many] or [""])
    assert [*keys.of(name, script.keys)] == [prefix + key.replace("_", "-") for key in script.keys]


OF_THE_NEW_ENGINE = {"alone", "due", "facts", "held", "holders", "lost", "sample", "settle", "states"}
"""Verbs that today's engine has under other names, or does without."""


@pytest.mark.runs_in("test-all")
def test_every_script_has_a_caller_that_gives_the_rest_where_the_header_wants_one() -> None:
    found = [*callers()]

    assert {caller.script for caller in found} == set(scripts.names()) | OF_THE_NEW_ENGINE
    old = [each for each in found if each.script not in OF_THE_NEW_ENGINE]
    assert [each for each in old if each.gives_rest != bool(scripts.load(each.script).rest)] == []


@pytest.mark.runs_in("test-all")
def test_no_call_is_made_with_keys_that_were_listed_by_hand() -> None:
    """`Call(...)` stands nowhere, and nobody but `Call.on` loads a script."""
    by_hand = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Call", "steps.Call"}
    ]
    loading = {
        str(path.relative_to(ROOT))
        for path, node in nodes()
        if isinstance(node, ast.ImportFrom)
        and node.module == "shardq.protocol.scripts"
        and "load" in {a.name for a in node.names}
    }

    assert by_hand == []
    assert loading == {"shardq/ops/steps.py"}


def test_open_creates_every_key_that_a_queue_has() -> None:
    keys = QueueKeys("q")

    assert keys.of("open", scripts.load("open").keys) == keys.fixed


def test_the_planner_counts_the_keys_of_a_write() -> None:
    assert len(scripts.load("write").keys) == WRITE_KEYS
