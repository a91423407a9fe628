"""docs/lua.md quotes the straight parts of the scripts, each line of them, as they are."""

from __future__ import annotations

import re

import pytest

from tests.house.doc_blocks import FENCE, ROOT

PAGE = (ROOT / "docs" / "lua.md").read_text()
SECTIONS = dict(re.findall(r"^## One (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def code(text: str) -> list[str]:
    """The lines of a piece of Lua without indentation, empty lines, comments and the line that names the engine."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("--", "#!"))]


@pytest.mark.parametrize("verb", ["write", "read", "ack"])
def test_the_page_quotes_a_verb_from_its_keys_to_the_end_of_its_straight_part(verb: str) -> None:
    source = (ROOT / "lua" / f"{verb}.lua").read_text()
    quoted = "".join(block for language, block in FENCE.findall(SECTIONS[verb]) if language == "lua")

    assert code(quoted) == code(source.partition("--- @general")[0])


def test_the_page_has_no_other_lua() -> None:
    sections = [verb for verb in SECTIONS if "```lua" in SECTIONS[verb]]
    assert sections == ["write", "read", "ack"]
    assert PAGE.count("```lua") == sum(SECTIONS[verb].count("```lua") for verb in sections)
