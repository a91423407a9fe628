"""A syntax tree that was kept is the one that luaparser makes of the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from luaparser import ast

from tests.house import lua_trees
from tests.house.lua_trees import UNREAD, parsed

TEXT = """-- All kinds of values
local LIST = {1, 2.5, 'a\\255', ["b"] = true, c = nil, [3] = false}

function Noun.verb(a, ...)
  for at = 1, #LIST do a = a .. -LIST[at] end
  repeat local b = a.c:d() until not b
  return function() return ... end
end
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the trees are kept."""
    monkeypatch.setattr(lua_trees, "KEPT", tmp_path / "kept")
    return tmp_path / "kept"


def told(value: Any) -> Any:
    """What rules read of a node."""
    if isinstance(value, list):
        return [told(each) for each in value]
    if not hasattr(value, "first_token"):
        return type(value), value
    fields = {name: told(each) for name, each in vars(value).items() if name not in UNREAD}
    return type(value), value.line, getattr(value.last_token, "line", None), fields


def test_a_kept_tree_is_as_parsed() -> None:
    first, kept = parsed(TEXT), parsed(TEXT)
    assert told(first) == told(kept) == told(ast.parse(TEXT))


def test_a_text_is_parsed_once_and_again_when_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = ast.parse

    def parse(text: str) -> Any:
        asked.append(text)
        return original(text)

    monkeypatch.setattr(ast, "parse", parse)
    for text in (TEXT, TEXT, f"{TEXT}\n", TEXT):
        parsed(text)
    assert asked == [TEXT, f"{TEXT}\n"]
    for kept in folder.glob("*.json"):
        kept.write_text("{")  # the disk was full
    parsed(TEXT)
    assert asked == [TEXT, f"{TEXT}\n", TEXT]


def test_old_trees_are_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lua_trees, "MAX_KEPT", 2)
    for number in range(6):
        parsed(f"local a{number} = {number}\n")
    assert len([*folder.iterdir()]) == 3
