"""The keys of a call are those that the comment above its verb names: no caller lists them by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardq.planner.costs import PLAIN_WRITE_KEYS, WRITE_KEYS
from shardq.protocol import scripts
from shardq.protocol.keys import MAX_PLAIN_KEYS, SHARED_KEYS, QueueKeys, RouterKeys, SharedKeys
from tests.house.lua_lint import FOLDER
from tests.house.lua_modules import Modules

ROOT = Path(__file__).resolve().parents[2]
OF_A_ROUTER = {"bind", "bindings", "follow"}
OF_ALL_QUEUES = {"register", "queues"}


@dataclass(frozen=True)
class Caller:
    """One `Call.on(keys, "verb", ..., rest=...)`."""

    where: str
    verb: str
    gives_rest: bool


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


@pytest.mark.parametrize("name", scripts.names())
def test_a_call_sends_the_keys_of_its_queue_its_router_or_all_queues(name: str) -> None:
    script = scripts.load(name)
    keys: QueueKeys | RouterKeys | SharedKeys
    if name in OF_ALL_QUEUES:
        keys, prefix = SHARED_KEYS, "shardq:"
    elif name in OF_A_ROUTER:
        keys, prefix = RouterKeys("q"), "shardq:{q}:router-"
    else:
        keys, prefix = QueueKeys("q"), "shardq:{q}:"

    assert [*keys.of(name, script.keys)] == [prefix + key.replace("_", "-") for key in script.keys]


def test_the_first_keys_of_a_queue_are_numbered_alike_in_python_and_in_lua() -> None:
    """A client makes a call from the names; a function of a module finds a key by its place (lua/base.lua)."""
    places = {name.lower(): at for name, at in Modules(FOLDER).places.items()}
    assert places == {name: at for at, name in enumerate(scripts.load("read").keys, 1)}
    assert [*QueueKeys.suffixes][: len(places)] == [*places]


@pytest.mark.runs_in("test-all")
def test_every_verb_has_a_caller_that_gives_the_rest_where_the_comment_wants_one() -> None:
    found = [*callers()]

    assert {caller.verb for caller in found} == set(scripts.names())
    assert [each for each in found if each.gives_rest != bool(scripts.load(each.verb).rest)] == []


@pytest.mark.runs_in("test-all")
def test_no_call_is_made_with_keys_that_were_listed_by_hand() -> None:
    """`Call(...)` stands nowhere; a script is loaded by `Call.on`, and where the library gets a moved clock."""
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
    assert loading == {
        "shardq/ops/queue/steps.py",
        "shardq/whatif/server.py",
    }


def test_open_creates_every_key_that_a_queue_has() -> None:
    keys = QueueKeys("q")

    assert keys.of("open", scripts.load("open").keys) == keys.fixed


def test_the_planner_counts_the_keys_of_a_write() -> None:
    assert len(scripts.load("write").keys) == WRITE_KEYS
    assert MAX_PLAIN_KEYS == PLAIN_WRITE_KEYS
