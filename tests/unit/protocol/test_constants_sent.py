"""Constants and direct functions of the sources, in the text for Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardq.protocol import sources

BASE = """-- @direct Turns.take
local META = 1
local MOST = 10 -- of a call
local verbs = {}
"""
TURNS = """local OWN = MOST + 2
local ENDS = OWN + 5
local MOST = 7
local WORD = 'a@b'
local LIST = {META}
Turns.SIZE = 512 -- bytes

function Turns.take(q) return q[META], MOST, OWN, ENDS, 'META', WORD, LIST end -- META
"""
OTHER = """function Other.give(q) return Turns.take(q), Turns.SIZE, MOST, Turns.rest, q.META end
"""


@pytest.fixture
def sent(tmp_path: Path) -> list[str]:
    (tmp_path / "order.txt").write_text("base\nturns\nother\n")
    for name, text in (("base", BASE), ("turns", TURNS), ("other", OTHER)):
        (tmp_path / f"{name}.lua").write_text(text)
    return sources.read(tmp_path).text.splitlines()[1:]


def test_a_constant_stands_in_the_place_of_its_name_in_the_modules_that_know_it(sent: list[str]) -> None:
    assert sent == [
        "local verbs = {}",
        "local Turns_take",
        "local Turns = {}",
        "do",
        "local WORD = 'a@b'",
        "local LIST = {1}",
        "function Turns_take(q) return q[1], 7, 12, 17, 'META', WORD, LIST end -- META",
        "end",
        "local Other = {}",
        "do",
        "function Other.give(q) return Turns_take(q), 512, 10, Turns.rest, q.META end",
        "end",
    ]
